-- What the C side gives the Lua modules under the name `host` (generator/sandbox.c), for tests that
-- run without it: templates from the checkout, and a digest that is only a stand-in for SHA-256.
return function(root)
  local host = { version = "0.0.0", digested = nil }

  function host.template(name)
    local file = io.open(root .. "templates/" .. name)
    local text = file and file:read("a")
    if file then file:close() end
    return text
  end

  function host.load(text, chunk, env) return load(text, chunk, "t", env) end

  -- Of equal texts equal; the text itself is kept for the test to look at.
  function host.sha256(text)
    host.digested = text
    local sum = 0
    for i = 1, #text do sum = (sum * 31 + text:byte(i)) & 0xffffffff end
    return ("%064x"):format(sum)
  end

  return host
end
