/* Tile t where the tiles of a section of `width` key heads come by key block, then the next
 * section: its key head, batch included, and its key block. */
DEV i64 head_of_section(i64 t, i64 width, const BackwardArgs *a, int *n) {
  const i64 section = t / (width * a->n_blocks), rest = t - section * width * a->n_blocks;
  const i64 begin = section * width, left = (i64)a->num_heads_k * a->batch - begin;
  width = width < left ? width : left;
  *n = (int)(rest / width);
  return begin + (rest - *n * width);
}
