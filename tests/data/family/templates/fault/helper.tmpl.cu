

int x = ${helper({})};
