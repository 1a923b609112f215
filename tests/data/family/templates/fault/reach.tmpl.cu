// [${reach()}]
