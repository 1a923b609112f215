/* The frame of a page; html.h states what holds of it. */
#include "html.h"

/* --c0 to --c7 are colours that are told apart in both modes. */
static const char common[] =
    ":root{--page:#fff;--ink:#1d2330;--soft:#667085;--line:#e6e9ef;--band:#f7f8fa;--note:#fff7e6;"
    "--edge:#f0c36d;--c0:#2f6fd6;--c1:#e8793a;--c2:#2f9e73;--c3:#b8408a;--c4:#7a6ff0;--c5:#a67c00;"
    "--c6:#3aa7b8;--c7:#8a93a3}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;padding:22px 28px;background:var(--page);color:var(--ink);"
    "font:14px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\n"
    "h1{font-size:21px;margin:0 0 2px;font-weight:650}h2{font-size:15px;margin:20px 0 2px}"
    "p{margin:4px 0}.soft{color:var(--soft)}\n"
    ".note{background:var(--note);border-left:4px solid var(--edge);padding:7px 12px;"
    "margin:12px 0;border-radius:3px}\n"
    ".figures{display:flex;gap:34px;margin:12px 0}.figures b{display:block;font-size:20px;"
    "font-weight:650;line-height:1.2}.figures span{color:var(--soft);font-size:12px}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 20px;margin:10px 0;font-size:12.5px}\n"
    "svg{display:block;font:11px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\n"
    "svg text{fill:var(--ink)}svg .tick{fill:var(--soft)}.grid{stroke:var(--line)}\n"
    "table{border-collapse:collapse;font-size:12.5px;margin-top:6px}td,th{padding:2px 18px 2px 0;"
    "text-align:left;border-bottom:1px solid var(--line)}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#14171d;--ink:#e6e9ef;--soft:#98a2b3;"
    "--line:#2b303b;--band:#1a1e26;--note:#2a2414;--c0:#6ea4ff;--c1:#f29a63;--c2:#4cc295;"
    "--c3:#e07ab9;--c4:#a39bff;--c5:#d8b13f;--c6:#5cc9da;--c7:#8f99ab}}\n";

void kiln__html_begin(FILE *to, const char *title) {
  fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>",
        to);
  kiln__html_text(to, title);
  fprintf(to, "</title>\n<style>\n%s", common);
}

void kiln__html_body(FILE *to) { fputs("</style>\n</head>\n<body>\n", to); }

void kiln__html_end(FILE *to, const char *script) {
  fprintf(to, "<script>\n//<![CDATA[\n%s//]]>\n</script>\n</body>\n</html>\n", script);
}

/* Bytes of the character that `s` begins with, 0 where it is none: too long a form, a surrogate, a
 * character past the last, or a control that XML forbids. */
static int character(const unsigned char *s) {
  if (s[0] < 0x20) return s[0] == '\t' || s[0] == '\n' || s[0] == '\r';
  if (s[0] < 0x7f) return 1;
  const int count = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  unsigned code = s[0] & (0x7fu >> count);
  if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
  for (int i = 1; i < count; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (s[i] & 0x3f);
  }
  if (code < least[count] || code > 0x10ffff || (code & 0xfffe) == 0xfffe) return 0;
  return code >= 0xd800 && code < 0xe000 ? 0 : count;
}

void kiln__html_text(FILE *to, const char *text) {
  const unsigned char *s = (const unsigned char *)text;
  while (s && *s) {
    const int count = character(s);
    switch (count == 1 ? *s : 0) {
    case '<': fputs("&lt;", to); break;
    case '>': fputs("&gt;", to); break;
    case '&': fputs("&amp;", to); break;
    case '"': fputs("&quot;", to); break;
    default:
      if (count)
        fwrite(s, 1, (size_t)count, to);
      else
        fputs("\xef\xbf\xbd", to);
    }
    s += count ? count : 1;
  }
}
