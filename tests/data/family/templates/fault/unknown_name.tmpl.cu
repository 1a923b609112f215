int y;
int x = ${missing};
