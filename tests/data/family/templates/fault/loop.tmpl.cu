// A fault of tests: never ends.
//@ while true do end
