-- Not Lua: a test looks at the message.
this is broken
