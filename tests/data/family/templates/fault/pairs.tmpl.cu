// The order in which pairs() gives keys:
//@ local words = {}
//@ for key in pairs({ zebra = 1, 10, 20, yak = 2, ape = 3, cat = false, [-1] = 4, dog = 5 }) do
//@   words[#words + 1] = key
//@ end
// [${table.concat(words, " ")}]
