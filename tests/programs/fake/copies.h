// The copies and memsets of both APIs by name: DRIVER(name, what its twin's name ends in), RUNTIME(…) likewise; and what describes them.
#pragma once
#include "fake.h"

typedef struct { size_t x, y, z; } pos3;
typedef struct { void *array; pos3 pos; pitched memory; } runtime_end;
typedef struct { runtime_end src, dst; extent3 extent; int kind; } runtime_copy;
typedef struct { runtime_end src; int src_device; runtime_end dst; int dst_device; extent3 extent; } runtime_peer_copy;
typedef struct { size_t x, y; unsigned kind; void *host, *device, *array; size_t pitch; } end_2d;
typedef struct { end_2d src, dst; size_t width, height; } copy_2d;
typedef struct { size_t x, y, z, lod; unsigned kind; void *host, *device, *array, *context; size_t pitch, height; } end_3d;
typedef struct { end_3d src, dst; size_t width, height, depth; } copy_3d;
typedef struct { unsigned kind; void *at; size_t row, layer; uint64_t hint; } box_end;
typedef struct { box_end src, dst; extent3 extent; unsigned order, flags; } box_copy;

#define DRIVER_COPIES                                                                                             \
    DRIVER(cuMemcpy, _ptds) DRIVER(cuMemcpyAsync, _ptsz) DRIVER(cuMemcpyPeer, _ptds) DRIVER(cuMemcpyPeerAsync, _ptsz) \
    DRIVER(cuMemcpyHtoD_v2, _ptds) DRIVER(cuMemcpyHtoDAsync_v2, _ptsz) DRIVER(cuMemcpyDtoH_v2, _ptds)             \
    DRIVER(cuMemcpyDtoHAsync_v2, _ptsz) DRIVER(cuMemcpyDtoD_v2, _ptds) DRIVER(cuMemcpyDtoDAsync_v2, _ptsz)        \
    DRIVER(cuMemcpyDtoA_v2, _ptds) DRIVER(cuMemcpyAtoD_v2, _ptds) DRIVER(cuMemcpyHtoA_v2, _ptds)                  \
    DRIVER(cuMemcpyHtoAAsync_v2, _ptsz) DRIVER(cuMemcpyAtoH_v2, _ptds) DRIVER(cuMemcpyAtoHAsync_v2, _ptsz)        \
    DRIVER(cuMemcpy2D_v2, _ptds) DRIVER(cuMemcpy2DUnaligned_v2, _ptds) DRIVER(cuMemcpy2DAsync_v2, _ptsz)          \
    DRIVER(cuMemcpy3D_v2, _ptds) DRIVER(cuMemcpy3DAsync_v2, _ptsz) DRIVER(cuMemcpy3DPeer, _ptds)                  \
    DRIVER(cuMemcpy3DPeerAsync, _ptsz) DRIVER(cuMemcpyBatchAsync, _ptsz) DRIVER(cuMemcpyBatchAsync_v2, _ptsz)     \
    DRIVER(cuMemcpy3DBatchAsync, _ptsz) DRIVER(cuMemcpy3DBatchAsync_v2, _ptsz)                                    \
    DRIVER(cuMemcpyWithAttributesAsync, _ptsz) DRIVER(cuMemcpy3DWithAttributesAsync, _ptsz)                       \
    DRIVER(cuMemsetD8_v2, _ptds) DRIVER(cuMemsetD8Async, _ptsz) DRIVER(cuMemsetD16_v2, _ptds)                     \
    DRIVER(cuMemsetD16Async, _ptsz) DRIVER(cuMemsetD32_v2, _ptds) DRIVER(cuMemsetD32Async, _ptsz)                 \
    DRIVER(cuMemsetD2D8_v2, _ptds) DRIVER(cuMemsetD2D8Async, _ptsz) DRIVER(cuMemsetD2D16_v2, _ptds)               \
    DRIVER(cuMemsetD2D16Async, _ptsz) DRIVER(cuMemsetD2D32_v2, _ptds) DRIVER(cuMemsetD2D32Async, _ptsz)

#define RUNTIME_COPIES                                                                                            \
    RUNTIME(cudaMemcpy, _ptds) RUNTIME(cudaMemcpyAsync, _ptsz) RUNTIME(cudaMemcpy2D, _ptds)                       \
    RUNTIME(cudaMemcpy2DAsync, _ptsz) RUNTIME(cudaMemcpy3D, _ptds) RUNTIME(cudaMemcpy3DAsync, _ptsz)              \
    RUNTIME(cudaMemcpy3DPeer, _ptds) RUNTIME(cudaMemcpy3DPeerAsync, _ptsz) RUNTIME(cudaMemcpyBatchAsync, _ptsz)   \
    RUNTIME(cudaMemcpy3DBatchAsync, _ptsz) RUNTIME(cudaMemcpyWithAttributesAsync, _ptsz)                          \
    RUNTIME(cudaMemcpy3DWithAttributesAsync, _ptsz) RUNTIME(cudaMemcpyToSymbol, _ptds)                            \
    RUNTIME(cudaMemcpyToSymbolAsync, _ptsz) RUNTIME(cudaMemcpyFromSymbol, _ptds)                                  \
    RUNTIME(cudaMemcpyFromSymbolAsync, _ptsz) RUNTIME(cudaMemcpyToArray, _ptds)                                   \
    RUNTIME(cudaMemcpyToArrayAsync, _ptsz) RUNTIME(cudaMemcpyFromArray, _ptds)                                    \
    RUNTIME(cudaMemcpyFromArrayAsync, _ptsz) RUNTIME(cudaMemcpy2DToArray, _ptds)                                  \
    RUNTIME(cudaMemcpy2DToArrayAsync, _ptsz) RUNTIME(cudaMemcpy2DFromArray, _ptds)                                \
    RUNTIME(cudaMemcpy2DFromArrayAsync, _ptsz) RUNTIME(cudaMemset, _ptds) RUNTIME(cudaMemsetAsync, _ptsz)         \
    RUNTIME(cudaMemset2D, _ptds) RUNTIME(cudaMemset2DAsync, _ptsz) RUNTIME(cudaMemset3D, _ptds)                   \
    RUNTIME(cudaMemset3DAsync, _ptsz)
