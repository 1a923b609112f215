// A fault of tests: writes a global.
//@ total = 1
