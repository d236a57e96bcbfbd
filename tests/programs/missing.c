// The library of an interposed symbol is not there at all: its own error, no crash, no count.
#include "check.h"
#include "cuda.h"
int cublasGemmEx(void) WEAK;
int cudnnBackendExecute(void) WEAK;
int cudaGraphLaunch_ptsz(void *, void *) WEAK;
int main(void) {
    EQUAL(cublasGemmEx(), 1);
    EQUAL(cudnnBackendExecute(), 1001);
    EQUAL(cudaGraphLaunch_ptsz(NULL, NULL), 302);
    EQUAL(counter(LAUNCHES), 0);
    return 0;
}
