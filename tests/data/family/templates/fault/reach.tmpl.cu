// What Lua code of a template can reach:
// [${reach()}]
