// A fault of tests: a function of the family fails.

int x = ${helper({})};
