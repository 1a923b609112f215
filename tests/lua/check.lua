-- Assertions of the Lua tests. Each raises with both values, so that a failure explains itself.
local check = {}

function check.equal(got, wanted)
  if got ~= wanted or math.type(got) ~= math.type(wanted) then
    error(("got:\n%s\nwanted:\n%s"):format(got, wanted), 2)
  end
end

-- fn(...) must raise exactly this message.
function check.raises(wanted, fn, ...)
  local ok, message = pcall(fn, ...)
  if ok then error("nothing was raised; wanted:\n" .. wanted, 2) end
  if message ~= wanted then error(("raised:\n%s\nwanted:\n%s"):format(message, wanted), 2) end
end

-- text must hold this piece, taken literally.
function check.holds(text, piece)
  if not text:find(piece, 1, true) then error(("'%s' is not in:\n%s"):format(piece, text), 2) end
end

function check.lacks(text, piece)
  if text:find(piece, 1, true) then error(("'%s' is in:\n%s"):format(piece, text), 2) end
end

-- The results must be a refusal: nil, this sentence, this kind.
function check.refused(sentence, kind, got, got_sentence, got_kind)
  check.equal(got, nil)
  check.equal(got_sentence, sentence)
  check.equal(got_kind, kind)
end

return check
