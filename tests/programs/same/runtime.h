// For programs of the runtime: its functions, beside those of data_mode.h, and work with results.
#pragma once
#include "common.h"

#include "../data_mode.h"

typedef struct { unsigned x, y, z; } dim3;
typedef struct { size_t width, height, depth; } extent3;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } pitched;
typedef struct { int kind, device; void *on_device, *on_host; long reserved[8]; } attributes; // CUDA 12 writes the first part
typedef struct { int id; char pad[4]; union { char bytes[64]; unsigned numbers[16]; int number; } value; } launch_attribute;
typedef struct { dim3 grid, block; size_t shared; stream_t stream; launch_attribute *attributes; unsigned count; } launch_config;
typedef struct { int kind, id; } place; // kind 1: a GPU, 2: the host
typedef struct { char bytes[64]; } ipc_handle;

int cudaGetDevice(int *), cudaSetDevice(int), cudaGetDeviceCount(int *), cudaDeviceReset(void), cudaMemGetInfo(size_t *, size_t *);
int cudaMalloc3D(pitched *, extent3), cudaHostAlloc(void **, size_t, unsigned), cudaHostRegister(void *, size_t, unsigned);
int cudaHostUnregister(void *), cudaHostGetDevicePointer(void **, void *, unsigned), cudaHostGetFlags(unsigned *, void *);
int cudaPointerGetAttributes(attributes *, const void *), cudaPeekAtLastError(void);
int cudaMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, int, stream_t);
int cudaMemcpyPeer(void *, int, const void *, int, size_t), cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, stream_t);
int cudaDeviceCanAccessPeer(int *, int, int), cudaDeviceEnablePeerAccess(int, unsigned), cudaStreamQuery(stream_t);
int cudaEventCreate(event_t *), cudaEventElapsedTime(float *, event_t, event_t), cudaDeviceGetAttribute(int *, int, int);
int cudaStreamAddCallback(stream_t, void (*)(stream_t, int, void *), void *, unsigned), cudaIpcGetMemHandle(ipc_handle *, void *);
int cudaIpcOpenMemHandle(void **, ipc_handle, unsigned), cudaIpcCloseMemHandle(void *), cudaIpcGetEventHandle(ipc_handle *, event_t);
int cudaIpcOpenEventHandle(event_t *, ipc_handle);
int cudaMemRangeGetAttribute(void *, size_t, int, const void *, size_t), cudaDriverGetVersion(int *), cudaMallocAsync(void **, size_t, stream_t);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, stream_t), cudaLaunchKernelExC(const launch_config *, const void *, void **);
int cudaLaunchCooperativeKernel(const void *, dim3, dim3, void **, size_t, stream_t);
const char *cudaGetErrorName(int);

enum { LAZY_PEER_ACCESS = 1, INTERPROCESS = 4 };
enum { FILL_KERNEL, COPY_KERNEL, SCALE_KERNEL };

// What `n` floats on the device are, once all that was issued is done.
static inline uint64_t on_device(const float *at, size_t n) {
    float *host = malloc(n * 4);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, at, n * 4, DEVICE_TO_HOST));
    uint64_t found = digest(host, n * 4);
    free(host);
    return found;
}

// A little training: three buffers of 3 MiB, which do not fit together on the tight device, written, used by turns, and read. Every seed
// has a digest of its own.
static inline uint64_t train(float seed) {
    enum { BUFFERS = 3, N = 3 * MIB / 4 };
    float *at[BUFFERS];
    uint64_t found = 0;
    for (int i = 0; i < BUFFERS; i++) {
        OK(cudaMalloc((void **)&at[i], N * 4));
        fill(at[i], N, seed + (float)i, NULL);
    }
    for (int i = 0; i < BUFFERS; i++) axpy(at[i], at[(i + 1) % BUFFERS], N, 0.5f, NULL);
    for (int i = 0; i < BUFFERS; i++) {
        found = found * 31 + on_device(at[i], N);
        OK(cudaFree(at[i]));
    }
    return found;
}
