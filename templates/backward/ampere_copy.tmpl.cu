/* ---- between global and shared memory ----
 *
 * Included by ampere.tmpl.cu. Threads beside each other take chunks of 16 bytes beside each other.
 */

//@ for _, t in ipairs(copies) do
/* Starts the copy of ${t.rows} rows of ${t.name}. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
//@ if t.padded then
 * So do columns ${t.dim} to ${t.layout.cols - 1}.
//@ end
 */
DEV void copy_${t.name}(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / ${t.wide}, chunk0 = me % ${t.wide};
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < ${t.passes}; i++) {
    const int row = row0 + ${t.step} * i;
    const u32 line_to = to + (u32)row * ${t.layout.pitch};
//@ if t.ragged_rows then
    if (row >= ${t.rows}) break;
//@ end
#pragma unroll
    for (int c = 0; c < ${t.layout.chunks}; c += ${t.wide}) {
      const int chunk = c + chunk0;
//@ if t.ragged_chunks then
      if (chunk >= ${t.layout.chunks}) break;
//@ end
      const int bytes = row < rows${t.padded and " && chunk < " .. t.dim // 8 or ""} ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ ${t.layout.swizzle_text("row")}) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += ${t.step} * row_bytes;
  }
}
//@ end

//@ for _, t in ipairs(stores) do
//@ local me = t.name == "dq" and "thread_index()" or "member()"
//@ local chunks = t.dim // 8
//@ local limit = t.ragged_rows and ("row >= %d || "):format(t.rows) or ""
/* Stores the first `rows` of ${t.rows} rows of ${t.name}. */
DEV void store_${t.name}(u32 from, char *to, i64 row_bytes, int rows) {
  const int row0 = ${me} / ${t.wide}, chunk0 = ${me} % ${t.wide};
#pragma unroll
  for (int i = 0; i < ${t.passes}; i++) {
    const int row = row0 + ${t.step} * i;
    if (${limit}row >= rows) break;
#pragma unroll
    for (int c = 0; c < ${chunks}; c += ${t.wide}) {
      const int chunk = c + chunk0;
//@ if chunks % t.wide ~= 0 then
      if (chunk >= ${chunks}) break;
//@ end
      u32 x[4];
      lds_u32x4(x, from + (u32)row * ${t.layout.pitch} +
                       (u32)(chunk ^ ${t.layout.swizzle_text("row")}) * 16);
      stg_u32x4(to + row * row_bytes + 16 * chunk, x);
    }
  }
}
//@ end
