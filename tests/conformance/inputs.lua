-- Inputs of the micro-kernels: numbers from a seed, as bytes. Everything is a function of the seed,
-- on every machine. Used by cases.lua and forward.lua.
local inputs = {}

-- A generator of integers 0 .. n - 1.
function inputs.random(seed)
  local state = seed * 2654435769 + 1
  return function(n)
    state = state * 6364136223846793005 + 1442695040888963407
    return (state >> 33) % n
  end
end

function inputs.words(random, count)
  local out = {}
  for i = 1, count do out[i] = ("<I4"):pack(random(1 << 16) << 16 | random(1 << 16)) end
  return table.concat(out)
end

-- The bits of a fp16 or bf16 number with this sign, exponent (of two) and mantissa.
local function bits16(dtype, sign, exponent, mantissa)
  if dtype == "bf16" then return sign << 15 | (exponent + 127) << 7 | mantissa end
  return sign << 15 | (exponent + 15) << 10 | mantissa
end

-- Whole numbers from -limit to limit, exact in either dtype; limit is at most 15.
function inputs.integers(random, dtype, count, limit)
  local out = {}
  for i = 1, count do
    local x = random(2 * limit + 1) - limit
    local bits = 0
    if x ~= 0 then
      local magnitude, exponent = math.abs(x), 0
      while magnitude >> (exponent + 1) > 0 do exponent = exponent + 1 end
      local width = dtype == "bf16" and 7 or 10
      bits = bits16(dtype, x < 0 and 1 or 0, exponent,
                    (magnitude << (width - exponent)) & ((1 << width) - 1))
    end
    out[i] = ("<I2"):pack(bits)
  end
  return table.concat(out)
end

-- A whole number from -15 to 15, as e4m3.
function inputs.e4m3(x)
  local magnitude, exponent = math.abs(x), 0
  if x == 0 then return "\0" end
  while magnitude >> (exponent + 1) > 0 do exponent = exponent + 1 end
  return string.char((x < 0 and 128 or 0) | (exponent + 7) << 3 | (magnitude << (3 - exponent)) & 7)
end

-- Numbers of either sign with 2^low <= |x| < 2^(high + 1), all mantissas.
function inputs.reals(random, dtype, count, low, high)
  local out, mantissas = {}, dtype == "bf16" and 128 or 1024
  for i = 1, count do
    out[i] = ("<I2"):pack(bits16(dtype, random(2), low + random(high - low + 1),
                                 random(mantissas)))
  end
  return table.concat(out)
end

function inputs.floats(list)
  local out = {}
  for i, x in ipairs(list) do out[i] = ("<f"):pack(x) end
  return table.concat(out)
end

function inputs.bits(list)
  local out = {}
  for i, x in ipairs(list) do out[i] = ("<I4"):pack(x) end
  return table.concat(out)
end

function inputs.coordinates(list)
  local out = {}
  for i, c in ipairs(list) do out[i] = ("<i4i4i4i4"):pack(table.unpack(c)) end
  return table.concat(out)
end

-- Parts one behind the other, each on a multiple of 256 bytes; their offsets.
function inputs.join(...)
  local out, offsets, size = {}, {}, 0
  for i, part in ipairs({ ... }) do
    offsets[i] = size
    out[i] = part .. ("\0"):rep(-#part % 256)
    size = size + #out[i]
  end
  return table.concat(out), table.unpack(offsets)
end

return inputs
