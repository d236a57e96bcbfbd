// What data_mode.c and data_mode_kernels.c share: the CUDA runtime as they call it, and the kernels as functions.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct stream *stream_t;
typedef struct event *event_t;
enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };
enum { NON_BLOCKING = 1, NO_TIMING = 2, ATTACH_GLOBAL = 1 };

int cudaMalloc(void **, size_t), cudaMallocManaged(void **, size_t, unsigned), cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
int cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, stream_t);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemset(void *, int, size_t), cudaMemset2D(void *, size_t, int, size_t, size_t), cudaMemsetAsync(void *, int, size_t, stream_t);
int cudaStreamCreate(stream_t *), cudaStreamCreateWithFlags(stream_t *, unsigned), cudaStreamDestroy(stream_t);
int cudaStreamSynchronize(stream_t), cudaStreamWaitEvent(stream_t, event_t, unsigned);
int cudaEventCreateWithFlags(event_t *, unsigned), cudaEventRecord(event_t, stream_t), cudaEventSynchronize(event_t), cudaEventQuery(event_t);
int cudaEventDestroy(event_t), cudaDeviceSynchronize(void), cudaGetLastError(void);
int cudaLaunchHostFunc(stream_t, void (*)(void *), void *);

// Ends the program with the place and CUDA's number if a call fails.
void check(int status, const char *file, int line, const char *call);
#define OK(call) check(call, __FILE__, __LINE__, #call)

// What stands for one of the kernels below, by its number in that order, where the runtime is given a host function.
const void *kernel_symbol(int kernel);
// The kernels; counts are of elements, what they compute is in the table of crates/emu/device/src/testing.rs.
void fill(float *out, uint64_t n, float value, stream_t);
void copy(float *out, const float *in, uint64_t n, stream_t);
void scale(float *x, uint64_t n, float a, stream_t);
void axpy(float *y, const float *x, uint64_t n, float a, stream_t);
void sum(float *out, const float *x, uint64_t n, stream_t);
void gather(float *out, const float *in, const float *index, uint64_t n, uint64_t m, stream_t);
void matmul(float *c, const float *a, const float *b, uint64_t m, uint64_t n, uint64_t k, stream_t);
