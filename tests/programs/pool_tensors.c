// tensors.c, with memory of a stream-ordered pool: what is handed out again too early changes a digest.
#define POOL
#include "tensors.c"
