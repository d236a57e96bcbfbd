// A little libcudart.so.13 (or .12, by -DVERSION), reaching the driver exactly as the real one does: libcuda.so.1 by dlopen, cuGetProcAddress_v2 by dlsym,
// that one's own answer for itself, and everything else through it.
#define _GNU_SOURCE
#include "copies.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION 13020
#endif
typedef int (*proc)(const char *, void **, int, uint64_t, int *);
static proc get;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int (*enter)(const char *);
static __thread int last;
// A failure is remembered until somebody asks for it; a success changes nothing.
static int said(int status) { return status ? last = status : 0; }

static void open_driver(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL), *self;
    proc first = (proc)dlsym(cuda, "cuGetProcAddress_v2");
    enter = (int (*)(const char *))dlsym(cuda, "fake_enter");
    get = first("cuGetProcAddress", &self, VERSION, 0, NULL) ? first : (proc)self;
}
static void *driver(const char *name, int per_thread) {
    void *found = NULL;
    pthread_once(&once, open_driver);
    get(name, &found, VERSION, per_thread ? 2 : 0, NULL);
    return found;
}
#define ENTER do { pthread_once(&once, open_driver); int status_ = enter(__func__); if (status_) return last = status_; } while (0)
#define CALL(name, type, ...) ((int (*) type)driver(name, 0))(__VA_ARGS__)

#define P void *
#define U unsigned
typedef int (*launch_type)(P, U, U, U, U, U, U, U, P, P *, P *);
static int launch(P f, dim3 g, dim3 b, P *args, size_t shared, P stream, int per_thread) {
    return said(((launch_type)driver("cuLaunchKernel", per_thread))(f, g.x, g.y, g.z, b.x, b.y, b.z, (U)shared, stream, args, NULL));
}
#define RT P f, dim3 g, dim3 b, P *args, size_t shared, P stream
int cudaLaunchKernel(RT) { ENTER; return launch(f, g, b, args, shared, stream, 0); }
int cudaLaunchKernel_ptsz(RT) { ENTER; return launch(f, g, b, args, shared, stream, 1); }
int __cudaLaunchKernel(RT) { ENTER; return launch(f, g, b, args, shared, stream, 0); }
int cudaLaunchCooperativeKernel(RT) {
    ENTER;
    return said(CALL("cuLaunchCooperativeKernel", (P, U, U, U, U, U, U, U, P, P *), f, g.x, g.y, g.z, b.x, b.y, b.z, (U)shared, stream, args));
}
int cudaLaunchKernelExC(const runtime_config *c, P f, P *args) {
    ENTER;
    driver_config d = {c->grid, c->block, (U)c->shared, c->stream, NULL, 0};
    return said(CALL("cuLaunchKernelEx", (const driver_config *, P, P *, P *), &d, f, args, NULL));
}
int cudaGraphLaunch(P exec, P stream) { ENTER; return said(CALL("cuGraphLaunch", (P, P), exec, stream)); }
int cudaStreamBeginCapture(P stream, int mode) { ENTER; return said(CALL("cuStreamBeginCapture", (P, int), stream, mode)); }
int cudaStreamEndCapture(P stream, P *graph) { ENTER; return said(CALL("cuStreamEndCapture", (P, P *), stream, graph)); }
int cudaStreamDestroy(P stream) { ENTER; return said(CALL("cuStreamDestroy", (P), stream)); }
int cudaMalloc(P *out, size_t bytes) {
    ENTER;
    if (bytes == 0) return *out = NULL, 0;
    return said(CALL("cuMemAlloc", (P *, size_t), out, bytes));
}
int cudaMallocManaged(P *out, size_t bytes, U flags) { ENTER; return said(CALL("cuMemAllocManaged", (P *, size_t, U), out, bytes, flags)); }
int cudaMallocPitch(P *out, size_t *pitch, size_t w, size_t h) { ENTER; return said(CALL("cuMemAllocPitch", (P *, size_t *, size_t, size_t, U), out, pitch, w, h, 4)); }
int cudaMalloc3D(pitched *out, extent3 e) {
    ENTER;
    out->xsize = e.width, out->ysize = e.height;
    return said(CALL("cuMemAllocPitch", (P *, size_t *, size_t, size_t, U), &out->ptr, &out->pitch, e.width, e.height * e.depth, 4));
}
int cudaMallocAsync(P *out, size_t bytes, P stream) { ENTER; return said(CALL("cuMemAllocAsync", (P *, size_t, P), out, bytes, stream)); }
int cudaFree(P at) { ENTER; return said(CALL("cuMemFree", (P), at)); }
int cudaMemGetInfo(size_t *f, size_t *t) { ENTER; return said(CALL("cuMemGetInfo", (size_t *, size_t *), f, t)); }
int cudaIpcGetMemHandle(P handle, P at) { ENTER; return said(CALL("cuIpcGetMemHandle", (P, P), handle, at)); }
int cudaGetDeviceProperties(char *props, int device) {
    ENTER;
    memset(props, 0, 1024);
    return said(CALL("cuDeviceTotalMem", (size_t *, int), (size_t *)(props + 288), device));
}
int cudaGetDriverEntryPoint(const char *name, P *out, uint64_t flags, int *status) { ENTER; pthread_once(&once, open_driver); return get(name, out, VERSION, flags, status); }
int cudaGetDriverEntryPointByVersion(const char *name, P *out, U version, uint64_t flags, int *status) { ENTER; pthread_once(&once, open_driver); return get(name, out, (int)version, flags, status); }

// Copies go down with the same memory, by the driver's plainest door for it.
static int down(int mine, P d, const void *s, size_t n, P stream) {
    return said(((int (*)(P, const void *, size_t, P))driver("cuMemcpyAsync", mine))(d, s, n, stream));
}
static int fill(int mine, P d, int value, size_t n, P stream) {
    return said(((int (*)(P, unsigned char, size_t, P))driver("cuMemsetD8Async", mine))(d, (unsigned char)value, n, stream));
}
#define TWINS(name, twin, parameters, how, ...)                          \
    int name parameters { ENTER; return how(0, __VA_ARGS__); }           \
    int name##twin parameters { ENTER; return how(1, __VA_ARGS__); }
// Without a stream, and with one.
#define FORMS(name, parameters, stream_parameters, how, ...)             \
    TWINS(name, _ptds, parameters, how, __VA_ARGS__, NULL)               \
    TWINS(name##Async, _ptsz, stream_parameters, how, __VA_ARGS__, q)
#define WITH(...) (__VA_ARGS__, int kind), (__VA_ARGS__, int kind, P q)
#define WITHOUT(...) (__VA_ARGS__), (__VA_ARGS__, P q)
#define FORM(name, parameters, how, ...) FORM_(name, parameters, how, __VA_ARGS__)
#define FORM_(name, parameters, how, ...) FORMS(name, parameters, how, __VA_ARGS__)
#pragma GCC diagnostic ignored "-Wunused-parameter"
FORM(cudaMemcpy, WITH(P d, P s, size_t n), down, d, s, n)
FORM(cudaMemcpy2D, WITH(P d, size_t to, P s, size_t from, size_t w, size_t h), down, d, s, w)
FORM(cudaMemcpy3D, WITHOUT(const runtime_copy *c), down, c->dst.memory.ptr, c->src.memory.ptr, c->extent.width)
FORM(cudaMemcpy3DPeer, WITHOUT(const runtime_peer_copy *c), down, c->dst.memory.ptr, c->src.memory.ptr, c->extent.width)
FORM(cudaMemcpyToSymbol, WITH(P v, P s, size_t n, size_t o), down, v, s, n)
FORM(cudaMemcpyFromSymbol, WITH(P d, P v, size_t n, size_t o), down, d, v, n)
FORM(cudaMemcpyToArray, WITH(P a, size_t x, size_t y, P s, size_t n), down, a, s, n)
FORM(cudaMemcpyFromArray, WITH(P d, P a, size_t x, size_t y, size_t n), down, d, a, n)
FORM(cudaMemcpy2DToArray, WITH(P a, size_t x, size_t y, P s, size_t p, size_t w, size_t h), down, a, s, w)
FORM(cudaMemcpy2DFromArray, WITH(P d, size_t p, P a, size_t x, size_t y, size_t w, size_t h), down, d, a, w)
FORM(cudaMemset, WITHOUT(P d, int v, size_t n), fill, d, v, n)
FORM(cudaMemset2D, WITHOUT(P d, size_t p, int v, size_t w, size_t h), fill, d, v, w)
FORM(cudaMemset3D, WITHOUT(pitched d, int v, extent3 e), fill, d.ptr, v, e.width)
int cudaMemcpyPeer(P d, int to, P s, int from, size_t n) { ENTER; return down(0, d, s, n, NULL); }
int cudaMemcpyPeerAsync(P d, int to, P s, int from, size_t n, P q) { ENTER; return down(0, d, s, n, q); }
TWINS(cudaMemcpyWithAttributesAsync, _ptsz, (P d, P s, size_t n, P attrs, P q), down, d, s, n, q)
TWINS(cudaMemcpy3DWithAttributesAsync, _ptsz, (box_copy *c, uint64_t flags, P q), down, c->dst.at, c->src.at, c->extent.width, q)
#if VERSION < 13000
TWINS(cudaMemcpyBatchAsync, _ptsz, (P *d, P *s, size_t *n, size_t count, P attrs, P starts, size_t kinds, size_t *failed, P q), down, *d, *s, *n, q)
TWINS(cudaMemcpy3DBatchAsync, _ptsz, (size_t count, box_copy *c, size_t *failed, uint64_t flags, P q), down, c->dst.at, c->src.at, c->extent.width, q)
#else
TWINS(cudaMemcpyBatchAsync, _ptsz, (P *d, P *s, size_t *n, size_t count, P attrs, P starts, size_t kinds, P q), down, *d, *s, *n, q)
TWINS(cudaMemcpy3DBatchAsync, _ptsz, (size_t count, box_copy *c, uint64_t flags, P q), down, c->dst.at, c->src.at, c->extent.width, q)
#endif
int cudaRuntimeGetVersion(int *out) { *out = VERSION; return 0; }
int cudaGetFuncBySymbol(P *out, P symbol) { ENTER; *out = symbol; return 0; }
int cudaPeekAtLastError(void) { return last; }
int cudaDeviceReset(void) { ENTER; return 0; }
int cudaGetLastError(void) { int was = last; last = 0; return was; }
