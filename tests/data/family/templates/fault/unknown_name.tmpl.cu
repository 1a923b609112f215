// A fault of tests: a name that no value has.
int x = ${missing};
