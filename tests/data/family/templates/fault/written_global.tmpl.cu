a
//@ total = 1
