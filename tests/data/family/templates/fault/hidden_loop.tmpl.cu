// A fault of tests: hides from the limit.
//@ while true do
//@   attempt(function() while true do end end)
//@ end
