// Stands for a communication library: what it allocates must stay device memory.
#include "cuda.h"
int nccl_alloc(void **out, size_t bytes) {
    int status = cudaMalloc(out, bytes);
    return status ? status + 1000 : 0; // so that this is a call and no jump
}
