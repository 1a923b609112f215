-- The architecture tables: each limit as the CUDA programming guide gives it.
local arch = require("arch")
local check = require("check")

-- name, major, minor, bytes a block, bytes an SM, warps an SM, families
local facts = {
  { "sm_80", 8, 0, 166912, 167936, 64, "ampere" },
  { "sm_86", 8, 6, 101376, 102400, 48, "ampere" },
  { "sm_89", 8, 9, 101376, 102400, 48, "ampere" },
  { "sm_90", 9, 0, 232448, 233472, 64, "ampere" },
  { "sm_90a", 9, 0, 232448, 233472, 64, "hopper" },
  { "sm_120", 12, 0, 101376, 102400, 48, "ampere" },
}

local tests = {}

function tests.every_limit_is_the_documented_one()
  for i, fact in ipairs(facts) do
    local row = arch.find(fact[1])
    check.equal(arch.names()[i], fact[1])
    check.equal(row.name, fact[1])
    check.equal(row.major, fact[2])
    check.equal(row.minor, fact[3])
    check.equal(row.smem_per_block, fact[4])
    check.equal(row.smem_per_sm, fact[5])
    check.equal(row.warps_per_sm, fact[6])
    check.equal(table.concat(row.families, " "), fact[7])
    check.equal(row.registers_per_sm, 65536)
    check.equal(row.registers_per_thread, 255)
    check.equal(row.smem_per_sm - row.smem_per_block, row.smem_reserved)
  end
  check.equal(#arch.names(), #facts)
end

function tests.unknown_names_find_nothing()
  check.equal(arch.find("sm_70"), nil)
  check.equal(arch.find("names"), nil)
  check.equal(arch.find(""), nil)
end

return tests
