/* Writing the page; page.h states what holds of it. */
#include "page.h"

#include "html.h"
#include "out.h"
#include "timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUTTER = 118, WIDTH = 1380, AXIS = 26, LANE = 19, GAP = 5, HEADING = 20 };

#define LETTER 6.2 /* pixels of a letter in a bar */

/* class: of the style sheet, which has the colour. */
static const struct {
  const char *class, *name, *sentence;
} kinds[KILN__BAR_KINDS] = {
    [KILN__BAR_FLIGHT] = {"flight", "load in flight", "issued, not landed"},
    [KILN__BAR_LANDED] = {"landed", "landed", "in shared memory, until the slot is let go"},
    [KILN__BAR_WAIT] = {"wait", "waits at a barrier", "or for copies and stores"},
    [KILN__BAR_BEHIND] = {"behind", "waits for a product", "wgmma_wait"},
    [KILN__BAR_QUEUED] = {"queued", "queued",
                          "a product that was issued; the tensor cores are busy"},
    [KILN__BAR_SCORES] = {"scores", "S = Q K\xe1\xb5\x80", "scores, on the tensor cores"},
    [KILN__BAR_RESULTS] = {"results", "O += P V", "output, on the tensor cores"},
    [KILN__BAR_SOFTMAX] = {"softmax", "softmax", "maximum, exponentials, sums"},
    [KILN__BAR_OUTPUT] = {"output", "output", "division, rounding, stores"},
    [KILN__BAR_STORE] = {"store", "store in flight", "by TMA, to device memory"},
};

static const char style[] =
    ":root{--flight:#4f8fe8;--landed:#cfe1fb;--wait:#dfe2e8;--behind:#eee4f0;--queued:#f6d8c2;"
    "--scores:#e8793a;--results:#b8408a;--softmax:#2f9e73;--output:#c29a1c;--store:#7a6ff0}\n"
    ".legend i{display:inline-block;width:22px;height:12px;border-radius:3px;margin-right:6px;"
    "vertical-align:-1px}\n"
    ".frame{display:flex;border:1px solid var(--line);border-radius:6px;overflow:hidden}\n"
    ".names{flex:none;border-right:1px solid var(--line)}.time{overflow-x:auto;flex:1}\n"
    "svg .head{font-weight:650}svg .lane{fill:var(--soft)}.band{fill:var(--band)}\n"
    "g.b text{fill:#fff;text-anchor:middle;font-size:10px;pointer-events:none}\n"
    "g.landed text,g.wait text,g.behind text{fill:#5b6478}g.b:hover rect{stroke:#1d2330}\n"
    ".flight{fill:var(--flight);background:var(--flight)}.landed{fill:var(--landed);"
    "background:var(--landed)}.wait{fill:var(--wait);background:var(--wait)}"
    ".behind{fill:var(--behind);background:var(--behind)}\n"
    ".queued{fill:var(--queued);background:var(--queued)}.scores{fill:var(--scores);"
    "background:var(--scores)}.results{fill:var(--results);background:var(--results)}\n"
    ".softmax{fill:var(--softmax);background:var(--softmax)}.output{fill:var(--output);"
    "background:var(--output)}.store{fill:var(--store);background:var(--store)}\n"
    ".bar{display:flex;align-items:center;gap:6px;margin:10px 0 6px;font-size:12.5px}\n"
    "button{font:inherit;padding:1px 10px;border:1px solid #c9ced8;border-radius:4px;"
    "background:var(--band);color:var(--ink);cursor:pointer}\n"
    "@media(prefers-color-scheme:dark){:root{--wait:#3a404c;--landed:#24405f;--behind:#41364a;"
    "--queued:#5d4130}g.landed text,g.wait text,g.behind text{fill:#b8c0cf}"
    "g.b:hover rect{stroke:#fff}}\n";

/* Zooms by placing every bar anew: letters keep their width. */
static const char script[] =
    "(function(){var box=document.querySelector('.time'),svg=box.querySelector('svg'),"
    "total=+svg.dataset.clocks,bars=svg.querySelectorAll('g.b'),ticks=svg.querySelector('.ticks'),"
    "wide=svg.querySelectorAll('.band'),high=svg.getAttribute('height'),scale=0;\n"
    "function place(s){scale=s;var w=total*s+24;svg.setAttribute('width',w);"
    "wide.forEach(function(r){r.setAttribute('width',w)});\n"
    "bars.forEach(function(g){var b=+g.dataset.b,e=+g.dataset.e,r=g.firstElementChild."
    "nextElementSibling,t=r.nextElementSibling,x=b*s,n=Math.max((e-b)*s,.6);"
    "r.setAttribute('x',x);r.setAttribute('width',n);if(t){t.setAttribute('x',x+n/2);"
    "t.style.display=n>t.textContent.length*6.2+5?'':'none'}});\n"
    "var step=1,i=0,text='';while(step*s<80)step*=i++%3===1?2.5:2;"
    "for(var c=0;c<=total;c+=step)text+='<line class=\"grid\" x1=\"'+c*s+'\" x2=\"'+c*s+'\" "
    "y1=\"20\" "
    "y2=\"'+high+'\"/><text class=\"tick\" x=\"'+(c*s+3)+'\" y=\"17\">'+c+'</text>';"
    "ticks.innerHTML=text}\n"
    "function fit(){return(box.clientWidth-30)/total}\n"
    "function zoom(f,at){var "
    "c=(box.scrollLeft+at)/scale;place(Math.min(Math.max(scale*f,fit()),4));"
    "box.scrollLeft=c*scale-at}\n"
    "document.querySelector('.bar').hidden=false;"
    "document.getElementById('in').onclick=function(){zoom(1.6,box.clientWidth/2)};"
    "document.getElementById('out').onclick=function(){zoom(1/1.6,box.clientWidth/2)};"
    "document.getElementById('fit').onclick=function(){place(fit())};\n"
    "box.addEventListener('wheel',function(e){if(!e.ctrlKey&&!e.metaKey)return;e.preventDefault();"
    "zoom(e.deltaY<0?1.2:1/1.2,e.clientX-box.getBoundingClientRect().left)},{passive:false});\n"
    "place(fit())})();\n";

typedef struct page {
  FILE *to;
  const kiln__page_facts *facts;
  const json_t *trace;
  const kiln__timeline *t;
  double scale; /* pixels a clock */
  int *tops;    /* of the lanes */
  int height;
} page;

/* ---- above the timeline ---- */

static long long member(const page *p, const char *name) {
  return json_integer_value(json_object_get(p->trace, name));
}

static void write_head(const page *p) {
  const kiln__variant *v = p->facts->variant;
  const kiln_attn_args *a = p->facts->args;
  kiln__variant_text name = kiln__variant_describe(&v->spec);
  char title[128];
  snprintf(title, sizeof title, "kiln trace: %s", name.text);
  kiln__html_begin(p->to, title);
  fputs(style, p->to);
  kiln__html_body(p->to);
  fprintf(p->to, "<h1>The timeline of one block: %s</h1>\n", name.text);
  fprintf(
      p->to,
      "<p class=\"soft\">Block %lld of %lld &#183; block_m %d, block_n %d, num_stages %d, "
      "num_warps %d &#183; batch %d, seqlen_q %d, seqlen_k %d, num_heads %d, num_heads_k %d</p>\n",
      member(p, "block"), member(p, "num_blocks"), v->tile.block_m, v->tile.block_n,
      v->tile.num_stages, v->tile.num_warps, a->batch, a->seqlen_q, a->seqlen_k, a->num_heads,
      a->num_heads_k);
  fputs(
      "<p class=\"note\"><b>A model, not a measurement.</b> The kernel ran on the emulator, which "
      "has no time. Every instruction has a simple cost (the table below), and what waits for what "
      "follows from the kernel itself. Read the order and the overlap, not the clocks.</p>\n",
      p->to);
  fprintf(p->to,
          "<div class=\"figures\"><div><b>%.0f</b><span>model clocks</span></div>"
          "<div><b>%.0f %%</b><span>of the time products run</span></div>"
          "<div><b>%.0f %%</b><span>of the softmax runs beside products</span></div></div>\n",
          p->t->clocks, 100 * p->t->tensor_busy, 100 * p->t->softmax_hidden);
}

static bool is_used(const page *p, int kind) {
  for (int i = 0; i < p->t->num_bars; i++)
    if ((int)p->t->bars[i].kind == kind) return true;
  return false;
}

static void write_legend(const page *p) {
  fputs("<div class=\"legend\">", p->to);
  for (int k = 0; k < KILN__BAR_KINDS; k++)
    if (is_used(p, k))
      fprintf(p->to, "<span title=\"%s\"><i class=\"%s\"></i>%s</span>", kinds[k].sentence,
              kinds[k].class, kinds[k].name);
  fputs("</div>\n<div class=\"bar\" hidden=\"hidden\"><button id=\"out\">&#8722;</button>"
        "<button id=\"in\">+</button><button id=\"fit\">fit</button>"
        "<span class=\"soft\">ctrl + wheel zooms; a bar tells what it is when the pointer rests on "
        "it</span></div>\n",
        p->to);
}

/* ---- the timeline ---- */

static bool begins_section(const page *p, int lane) {
  return lane == 0 || strcmp(p->t->lanes[lane].section, p->t->lanes[lane - 1].section) != 0;
}

static void place_lanes(page *p) {
  int y = AXIS;
  for (int i = 0; i < p->t->num_lanes; i++) {
    if (begins_section(p, i)) y += (i ? GAP : 0) + HEADING;
    p->tops[i] = y;
    y += LANE;
  }
  p->height = y + GAP;
}

static void write_names(const page *p) {
  fprintf(p->to, "<svg class=\"names\" width=\"%d\" height=\"%d\">", GUTTER, p->height);
  fprintf(p->to, "<text class=\"tick\" x=\"10\" y=\"17\">model clocks</text>\n");
  for (int i = 0; i < p->t->num_lanes; i++) {
    const kiln__lane *lane = &p->t->lanes[i];
    if (begins_section(p, i))
      fprintf(p->to, "<text class=\"head\" x=\"10\" y=\"%d\">%s</text>\n", p->tops[i] - 6,
              lane->section);
    fprintf(p->to, "<text class=\"lane\" x=\"18\" y=\"%d\">%s</text>\n", p->tops[i] + LANE - 6,
            lane->name);
  }
  fputs("</svg>\n", p->to);
}

/* At 1, 2, 5, 10, 20, ... clocks, 80 pixels apart at least. */
static void write_ticks(const page *p) {
  double step = 1;
  for (int i = 0; step * p->scale < 80; i++) step *= i % 3 == 1 ? 2.5 : 2;
  fputs("<g class=\"ticks\">", p->to);
  for (int i = 0; i * step <= p->t->clocks; i++) {
    double c = i * step, x = c * p->scale;
    fprintf(p->to,
            "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
            "<text class=\"tick\" x=\"%.1f\" y=\"17\">%.0f</text>\n",
            x, x, AXIS - 6, p->height, x + 3, c);
  }
  fputs("</g>\n", p->to);
}

static void write_bar(const page *p, const kiln__bar *bar) {
  double x = bar->begin * p->scale, width = fmax((bar->end - bar->begin) * p->scale, 0.6);
  int y = p->tops[bar->lane] + 1, height = LANE - 3;
  const char *class = kinds[bar->kind].class;
  fprintf(p->to, "<g class=\"b %s\" data-b=\"%.0f\" data-e=\"%.0f\"><title>", class, bar->begin,
          bar->end);
  kiln__html_text(p->to, bar->title);
  fprintf(p->to, "</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" rx=\"2\"/>", x, y,
          width, height);
  if (bar->label[0]) {
    bool fits = width > LETTER * (double)strlen(bar->label) + 5;
    fprintf(p->to, "<text x=\"%.2f\" y=\"%d\"%s>", x + width / 2, y + height - 4,
            fits ? "" : " style=\"display:none\"");
    kiln__html_text(p->to, bar->label);
    fputs("</text>", p->to);
  }
  fputs("</g>\n", p->to);
}

static void write_timeline(const page *p) {
  double width = p->t->clocks * p->scale + 24;
  fputs("<div class=\"frame\">", p->to);
  write_names(p);
  fprintf(p->to, "<div class=\"time\"><svg width=\"%.0f\" height=\"%d\" data-clocks=\"%.0f\">\n",
          width, p->height, p->t->clocks);
  for (int i = 0; i < p->t->num_lanes; i++)
    fprintf(p->to, "<rect class=\"band\" y=\"%d\" width=\"%.0f\" height=\"%d\"/>\n", p->tops[i],
            width, LANE - 1);
  write_ticks(p);
  for (int i = 0; i < p->t->num_bars; i++) write_bar(p, &p->t->bars[i]);
  fputs("</svg></div></div>\n", p->to);
}

/* ---- below it ---- */

static void write_costs(const page *p) {
  size_t i;
  const json_t *row;
  fputs("<h2>What the clock counts</h2>\n<table><tr><th>step</th><th>clocks</th></tr>\n", p->to);
  json_array_foreach(json_object_get(p->trace, "costs"), i, row) {
    fputs("<tr><td>", p->to);
    kiln__html_text(p->to, json_string_value(json_array_get(row, 0)));
    fputs("</td><td>", p->to);
    kiln__html_text(p->to, json_string_value(json_array_get(row, 1)));
    fputs("</td></tr>\n", p->to);
  }
  fputs("</table>\n<p class=\"soft\">Not counted: other arithmetic, bank conflicts, caches, other "
        "blocks of the SM, which fill gaps where two fit on one, warps that share a scheduler. The "
        "numbers in S, O, K and V are blocks of keys, in "
        "Q blocks of queries.</p>\n",
        p->to);
}

static void write_page(page *p) {
  place_lanes(p);
  write_head(p);
  write_legend(p);
  write_timeline(p);
  write_costs(p);
  kiln__html_end(p->to, script);
}

kiln_status kiln__page_make(const kiln__page_facts *facts, const json_t *trace, char **text,
                            size_t *length) {
  kiln__timeline timeline;
  *text = NULL;
  kiln_status status = kiln__timeline_create(facts, trace, &timeline);
  if (status != KILN_OK) return kiln__fail(status, "no memory is left for the timeline");
  page p = {.facts = facts, .trace = trace, .t = &timeline};
  p.scale = timeline.clocks > 0 ? WIDTH / timeline.clocks : 1;
  p.tops = calloc((size_t)timeline.num_lanes + 1, sizeof *p.tops);
  p.to = p.tops ? open_memstream(text, length) : NULL;
  bool failed = !p.to;
  if (p.to) {
    write_page(&p);
    failed = ferror(p.to) != 0;
    failed = fclose(p.to) != 0 || failed;
  }
  free(p.tops);
  kiln__timeline_destroy(&timeline);
  return failed ? kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for the page") : KILN_OK;
}
