//@ local t = reach
int f = ${finalizer()};
