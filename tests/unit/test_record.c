/* Reading launch records: a good one, and one fault at a time. */
#include "suites.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "fake.h"

START_TEST(a_good_record) {
  kiln__record r;
  fake_parse_record(fake_record, &r);
  ck_assert_str_eq(r.family, "hopper");
  ck_assert_int_eq(r.align, 16);
  ck_assert_str_eq(r.spec.arch, "sm_90a");
  ck_assert_int_eq(r.spec.dtype, KILN_DTYPE_BF16);
  ck_assert_int_eq(r.tile.block_m, 128);
  ck_assert_int_eq(r.num_workspace, 2);
  ck_assert_int_eq(r.workspace[0].zero, 1);
  ck_assert_int_eq(r.workspace[1].zero, 0);
  ck_assert_int_eq(r.workspace[1].dims[0].field, KILN__SIZE_SEQLEN_Q);
  ck_assert_int_eq(r.workspace[1].dims[0].divisor, 128);
  ck_assert_int_eq(r.maps[KILN__K].box_rows, 64);
  ck_assert_int_eq(r.entries[0].shape.threads, 384);
  ck_assert_int_eq(r.entries[0].num_grid, 3);
  ck_assert_int_eq(r.entries[0].params[4], KILN__PARAM_ARGS);
}
END_TEST

/* One replacement in the good record, and what the sentence must name. */
static const struct {
  const char *from, *to, *named;
} faults[] = {
    {"\"format\":1", "\"format\":2", "format"},
    {"\"layout\":\"forward.1\"", "\"layout\":\"forward.2\"", "layout"},
    {"\"align\":16", "\"align\":24", "align"},
    {"\"align\":16", "\"align\":\"16\"", "align"},
    {"\"arch\":\"sm_90a\"", "\"arch\":\"sm_90a_and_much_more\"", "arch"},
    {"\"dtype\":\"bf16\"", "\"dtype\":\"fp64\"", "dtype"},
    {"\"mask\":\"none\"", "\"mask\":3", "mask"},
    {"\"head_dim\":64", "\"head_dim\":0", "head_dim"},
    {"\"block_m\":128", "\"block_m\":-1", "block_m"},
    {"\"bytes\":16", "\"bytes\":0", "bytes"},
    {"[\"seqlen_q\",128],[\"batch\",1]]}", "[\"seqlen_q\",0]]}", "dims"},
    {"\"swizzle\":128", "\"swizzle\":96", "swizzle"},
    {"\"box_rows\":128", "\"box_rows\":257", "box_rows"},
    {"\"name\":\"kiln_forward\"", "\"name\":\"\"", "name"},
    {"\"threads\":384", "\"threads\":1025", "threads"},
    {"\"threads\":384", "\"threads\":384.0", "threads"},
    {"\"cluster\":1", "\"cluster\":0", "cluster"},
    {"\"shared_bytes\":98304", "\"shared_bytes\":99999999", "shared_bytes"},
    {"\"persistent\":1", "\"persistent\":-1", "persistent"},
    {"[\"num_heads\",1]", "[\"heads\",1]", "grid"},
    {"\"map:q\"", "\"map:x\"", "params"},
    {"\"k\":{", "\"l\":{", "params"},
    {"\"entries\":[{", "\"entries\":[],\"none\":[{", "entries"},
    {"{\"format\"", "[\"format\"", "JSON"},
};

START_TEST(every_fault_is_named) {
  char json[4096], sentence[512];
  kiln__record record;
  kiln__text error;
  const char *at = strstr(fake_record, faults[_i].from);
  ck_assert_ptr_nonnull(at);
  snprintf(json, sizeof json, "%.*s%s%s", (int)(at - fake_record), fake_record, faults[_i].to,
           at + strlen(faults[_i].from));
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  ck_assert_int_eq(kiln__record_parse(json, strlen(json), &error, &record), KILN_CORRUPT);
  ck_assert_msg(strstr(sentence, faults[_i].named) != NULL, "%s", sentence);
}
END_TEST

START_TEST(every_cut_is_corrupt) {
  char sentence[512];
  kiln__record record;
  kiln__text error;
  for (size_t length = 0; length < strlen(fake_record); length++) {
    kiln__text_init_fixed(&error, sentence, sizeof sentence);
    ck_assert_int_eq(kiln__record_parse(fake_record, length, &error, &record), KILN_CORRUPT);
  }
}
END_TEST

START_TEST(completed_and_read_back) {
  kiln__compiled in, out;
  char sentence[512], *json;
  kiln__record record;
  kiln__text error;
  memset(&in, 0, sizeof in);
  in.num_entries = 2;
  in.entries[0] = (kiln__entry_resources){"other", 1, 2, 3};
  in.entries[1] = (kiln__entry_resources){"kiln_forward", 168, 40, 1024};
  in.notes = (char *)"first\nsecond";
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  ck_assert_int_eq(kiln__record_complete(fake_record, &in, &error, &json), KILN_OK);
  fake_parse_record(json, &record);
  kiln__record_resources(json, &out);
  ck_assert_int_eq(out.num_entries, 1);
  ck_assert_int_eq(out.entries[0].registers, 168);
  ck_assert_int_eq(out.entries[0].spill_bytes, 40);
  ck_assert_int_eq(out.entries[0].static_bytes, 1024);
  ck_assert_str_eq(out.notes, "first\nsecond");
  free(out.notes);
  free(json);
}
END_TEST

Suite *suite_record(void) {
  Suite *suite = suite_create("record");
  TCase *tests = tcase_create("record");
  tcase_add_test(tests, a_good_record);
  tcase_add_loop_test(tests, every_fault_is_named, 0, (int)(sizeof faults / sizeof faults[0]));
  tcase_add_test(tests, every_cut_is_corrupt);
  tcase_add_test(tests, completed_and_read_back);
  suite_add_tcase(suite, tests);
  return suite;
}
