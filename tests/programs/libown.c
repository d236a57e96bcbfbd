// A library with functions of its own under CUDA's names.
int cublasGemmEx(void) { return 71; }
int cuLaunchKernel(void) { return 72; }
