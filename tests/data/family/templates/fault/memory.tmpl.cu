// A fault of tests: eats all memory.
//@ local t = {}
//@ for i = 1, 100000000 do
//@   t[i] = ("x"):rep(100000) .. i
//@ end
