// CUDA graphs with results: captured, updated, changed node by node, built by hand, one inside another. `graphs` prints what is in its
// buffers after each step; they are 32 MiB, and the device may have less. Each launch of a graph is one launch to the shim, if there is one.
#include "check.h"

typedef uint64_t ptr;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(ptr *, size_t);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *), cuMemcpyDtoH_v2(void *, ptr, size_t);
int cuStreamCreate(void **, unsigned), cuStreamSynchronize(void *), cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuStreamWaitEvent(void *, void *, unsigned);
int cuMemsetD32Async(ptr, unsigned, size_t, void *), cuMemcpyDtoDAsync_v2(ptr, ptr, size_t, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **), cuGraphCreate(void **, unsigned), cuGraphDestroy(void *);
int cuGraphAddKernelNode_v2(void **, void *, void **, size_t, const void *), cuGraphAddMemsetNode(void **, void *, void **, size_t, const void *, void *);
int cuGraphAddMemcpyNode(void **, void *, void **, size_t, const void *, void *), cuGraphAddChildGraphNode(void **, void *, void **, size_t, void *);
int cuGraphGetNodes(void *, void **, size_t *), cuGraphInstantiateWithFlags(void **, void *, uint64_t), cuGraphInstantiate_v2(void **, void *, void **, char *, size_t);
int cuGraphLaunch(void *, void *), cuGraphExecDestroy(void *), cuGraphExecUpdate_v2(void *, void *, void *);
int cuGraphExecKernelNodeSetParams_v2(void *, void *, const void *), cuGraphExecMemsetNodeSetParams(void *, void *, const void *, void *);
int cuGraphExecChildGraphNodeSetParams(void *, void *, void *);

typedef struct { void *function; unsigned grid[3], block[3], shared; void **params, **extra, *kernel, *context; } kernel_node;
typedef struct { ptr dst; size_t pitch; unsigned value, element; size_t width, height; } memset_node;
typedef struct { size_t x, y, z, lod; unsigned kind; void *host; ptr device; void *array, *reserved; size_t pitch, height; } end_3d;
typedef struct { end_3d src, dst; size_t width, height, depth; } copy_3d;
typedef struct { int result; void *node, *from; } update;

enum { BUFFERS = 8, N = 1 << 20 };
static ptr buffer[BUFFERS];
static void *function, *stream, *other, *parts, *meets;
static uint64_t launches;

static const char *PTX =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry deepum_test_scale(\n"
    "    .param .u64 p0,\n    .param .u64 p1,\n    .param .u64 p2\n)\n{\n    ret;\n}\n";

// x = a x + 1
typedef struct { ptr x; uint64_t n; uint64_t a; void *list[3]; } arguments;
static kernel_node scale(arguments *args, int of, float a) {
    *args = (arguments){.x = buffer[of], .n = N};
    memcpy(&args->a, &a, sizeof a);
    args->list[0] = &args->x, args->list[1] = &args->n, args->list[2] = &args->a;
    return (kernel_node){.function = function, .grid = {64, 1, 1}, .block = {256, 1, 1}, .params = args->list};
}
static void capture(int of, float a, void *into) {
    arguments args;
    kernel_node node = scale(&args, of, a);
    EQUAL(cuLaunchKernel(function, 64, 1, 1, 256, 1, 1, 0, into, node.params, NULL), 0);
}
static void launch(void *exec) {
    EQUAL(cuGraphLaunch(exec, stream), 0);
    launches++;
}
static void show(const char *step) {
    static float copy[N];
    EQUAL(cuStreamSynchronize(stream), 0);
    printf("%s:", step);
    for (int i = 0; i < BUFFERS; i++) {
        EQUAL(cuMemcpyDtoH_v2(copy, buffer[i], sizeof copy), 0);
        for (int k = 1; k < N; k++) CHECK(copy[k] == copy[0]);
        printf(" %g", copy[0]);
    }
    puts("");
    if (ring()) EQUAL(counter(LAUNCHES), launches);
}

// Every buffer in a chain of two streams that part and meet.
static void *captured(int first, int step, float a) {
    void *graph;
    EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
    EQUAL(cuEventRecord(parts, stream), 0);
    EQUAL(cuStreamWaitEvent(other, parts, 0), 0);
    for (int i = 0, of = first; i < BUFFERS; i++, of += step) capture(of, a + (float)i, i % 2 ? other : stream);
    EQUAL(cuEventRecord(meets, other), 0);
    EQUAL(cuStreamWaitEvent(stream, meets, 0), 0);
    EQUAL(cuMemcpyDtoDAsync_v2(buffer[first], buffer[first + step], sizeof(float) * N, stream), 0);
    EQUAL(cuStreamEndCapture(stream, &graph), 0);
    return graph;
}

int main(void) {
    void *context, *module, *graph, *exec, *nodes[16], *child, *built, *last;
    EQUAL(cuInit(0), 0);
    EQUAL(cuDevicePrimaryCtxRetain(&context, 0), 0);
    EQUAL(cuCtxSetCurrent(context), 0);
    EQUAL(cuModuleLoadData(&module, PTX), 0);
    EQUAL(cuModuleGetFunction(&function, module, "deepum_test_scale"), 0);
    EQUAL(cuStreamCreate(&stream, 1), 0);
    EQUAL(cuStreamCreate(&other, 1), 0);
    EQUAL(cuEventCreate(&parts, 0), 0);
    EQUAL(cuEventCreate(&meets, 0), 0);
    for (int i = 0; i < BUFFERS; i++) {
        EQUAL(cuMemAlloc_v2(&buffer[i], sizeof(float) * N), 0);
        EQUAL(cuMemsetD32Async(buffer[i], 0, N, stream), 0);
    }
    graph = captured(0, 1, 1);
    show("captured");
    EQUAL(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    for (int i = 0; i < 6; i++) launch(exec);
    show("launched");

    // The same structure on other buffers.
    void *reversed = captured(BUFFERS - 1, -1, 2);
    update info;
    EQUAL(cuGraphExecUpdate_v2(exec, reversed, &info), 0);
    EQUAL(cuGraphDestroy(reversed), 0);
    launch(exec);
    launch(exec);
    show("updated");

    // One node, by its handle in the graph it was made from.
    size_t count = 16;
    EQUAL(cuGraphGetNodes(graph, nodes, &count), 0);
    EQUAL(count, BUFFERS + 1);
    arguments args;
    kernel_node node = scale(&args, 3, 0.5f);
    EQUAL(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &node), 0);
    EQUAL(cuGraphDestroy(graph), 0);
    launch(exec);
    show("changed");
    EQUAL(cuGraphExecDestroy(exec), 0);

    // By hand: a memset, a graph of two kernels, a copy.
    EQUAL(cuGraphCreate(&child, 0), 0);
    node = scale(&args, 1, 3);
    EQUAL(cuGraphAddKernelNode_v2(&last, child, NULL, 0, &node), 0);
    node = scale(&args, 2, 4);
    EQUAL(cuGraphAddKernelNode_v2(&last, child, &last, 1, &node), 0);
    void *zeroing, *inner;
    EQUAL(cuGraphCreate(&built, 0), 0);
    memset_node zero = {buffer[1], 0, 0, 4, N, 1};
    EQUAL(cuGraphAddMemsetNode(&zeroing, built, NULL, 0, &zero, context), 0);
    EQUAL(cuGraphAddChildGraphNode(&inner, built, &zeroing, 1, child), 0);
    copy_3d copy = {{.kind = 2, .device = buffer[2]}, {.kind = 2, .device = buffer[7]}, sizeof(float) * N, 1, 1};
    EQUAL(cuGraphAddMemcpyNode(&last, built, &inner, 1, &copy, context), 0);
    EQUAL(cuGraphInstantiate_v2(&exec, built, NULL, NULL, 0), 0);
    launch(exec);
    launch(exec);
    show("built");
    zero.dst = buffer[2];
    EQUAL(cuGraphExecMemsetNodeSetParams(exec, zeroing, &zero, context), 0);
    EQUAL(cuGraphDestroy(child), 0);
    EQUAL(cuGraphCreate(&child, 0), 0);
    node = scale(&args, 4, 1);
    EQUAL(cuGraphAddKernelNode_v2(&last, child, NULL, 0, &node), 0);
    node = scale(&args, 5, 1);
    EQUAL(cuGraphAddKernelNode_v2(&last, child, &last, 1, &node), 0);
    EQUAL(cuGraphExecChildGraphNodeSetParams(exec, inner, child), 0);
    launch(exec);
    show("rebuilt");
    return 0;
}
