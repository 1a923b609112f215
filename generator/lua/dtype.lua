-- One row per dtype of q, k, v and o.
return {
  fp16 = {
    name = "fp16",
    bytes = 2,
    mma = "f16",          -- operand type in mma and wgmma
    pack = "pack_fp16",   -- wrapper: two floats to one register
    wide_exponent = false,
    -- log2 of p at a fast pass's reference: scores may rise by 8 powers of two, and what lies 22
    -- below it still has all its bits.
    lead = 8,
  },
  bf16 = {
    name = "bf16",
    bytes = 2,
    mma = "bf16",
    pack = "pack_bf16",
    wide_exponent = true, -- the range of fp32: no p underflows that fp32 would keep
    lead = 0,
  },
}
