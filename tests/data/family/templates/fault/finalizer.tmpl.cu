// A fault of tests: asks for a finalizer.
int f = ${finalizer()};
