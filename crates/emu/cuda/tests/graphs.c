/* CUDA graphs by the stand-in libcuda.so.1: what captures become and forbid, and what launches of graphs do.
 * Usage: graphs LIBRARY CASE. Exits 0, or says which check failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef uint64_t Ptr;
typedef void *H;
typedef R (*GetProc)(const char *, void **, int, uint64_t, int *);

static void *library;
static GetProc get_proc;

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); exit(1); } } while (0)
#define IS(x, want) do { R r_ = (x); if (r_ != (want)) { fprintf(stderr, "line %d: %s answered %d\n", __LINE__, #x, r_); exit(1); } } while (0)
#define OK(x) IS(x, 0)

enum { INVALID_VALUE = 1, ILLEGAL_STATE = 401, UNSUPPORTED = 900, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT,
       CAPTURED_EVENT, WRONG_THREAD, UPDATE_FAILURE = 910 };
enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { KERNEL, MEMCPY, MEMSET, HOST, CHILD, EMPTY, WAIT_EVENT, EVENT_RECORD };

/* Every function under its own name, by the version that has this signature. */
#define FUNCTIONS(X) \
    X(cuInit, 2000, unsigned) X(cuDevicePrimaryCtxRetain, 7000, H *, int) X(cuCtxSetCurrent, 4000, H) X(cuCtxSynchronize, 2000, void) \
    X(cuModuleLoadData, 2000, H *, const void *) X(cuModuleGetFunction, 2000, H *, H, const char *) \
    X(cuMemAlloc, 3020, Ptr *, size_t) X(cuMemAllocManaged, 6000, Ptr *, size_t, unsigned) X(cuMemFree, 3020, Ptr) X(cuMemHostAlloc, 2020, void **, size_t, unsigned) \
    X(cuMemcpy, 4000, Ptr, Ptr, size_t) X(cuMemcpyAsync, 4000, Ptr, Ptr, size_t, H) X(cuMemsetD32Async, 3020, Ptr, unsigned, size_t, H) \
    X(cuMemPrefetchAsync, 8000, Ptr, size_t, int, H) \
    X(cuStreamCreate, 2000, H *, unsigned) X(cuStreamDestroy, 4000, H) X(cuStreamQuery, 2000, H) X(cuStreamSynchronize, 2000, H) \
    X(cuStreamWaitEvent, 3020, H, H, unsigned) X(cuEventCreate, 2000, H *, unsigned) X(cuEventRecord, 2000, H, H) \
    X(cuEventRecordWithFlags, 11010, H, H, unsigned) X(cuEventQuery, 2000, H) X(cuEventSynchronize, 2000, H) \
    X(cuLaunchHostFunc, 10000, H, void (*)(void *), void *) X(cuStreamAddCallback, 5000, H, void (*)(H, R, void *), void *, unsigned) \
    X(cuLaunchKernel, 4000, H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **) \
    X(cuStreamBeginCapture, 10010, H, int) X(cuStreamBeginCaptureToGraph, 12030, H, H, const H *, const void *, size_t, int) \
    X(cuStreamEndCapture, 10000, H, H *) X(cuStreamIsCapturing, 10000, H, int *) \
    X(cuStreamGetCaptureInfo, 12030, H, int *, uint64_t *, H *, const H **, const void **, size_t *) \
    X(cuStreamUpdateCaptureDependencies, 12030, H, H *, const void *, size_t, unsigned) X(cuThreadExchangeStreamCaptureMode, 10010, int *) \
    X(cuGraphCreate, 10000, H *, unsigned) X(cuGraphDestroy, 10000, H) X(cuGraphClone, 10000, H *, H) X(cuGraphNodeFindInClone, 10000, H *, H, H) \
    X(cuGraphGetNodes, 10000, H, H *, size_t *) X(cuGraphGetRootNodes, 10000, H, H *, size_t *) \
    X(cuGraphGetEdges, 12030, H, H *, H *, void *, size_t *) X(cuGraphNodeGetType, 10000, H, int *) \
    X(cuGraphNodeGetDependencies, 12030, H, H *, void *, size_t *) X(cuGraphNodeGetDependentNodes, 12030, H, H *, void *, size_t *) \
    X(cuGraphAddDependencies, 12030, H, const H *, const H *, const void *, size_t) \
    X(cuGraphAddKernelNode, 12000, H *, H, const H *, size_t, const void *) X(cuGraphAddMemcpyNode, 10000, H *, H, const H *, size_t, const void *, H) \
    X(cuGraphAddMemsetNode, 10000, H *, H, const H *, size_t, const void *, H) X(cuGraphAddHostNode, 10000, H *, H, const H *, size_t, const void *) \
    X(cuGraphAddEmptyNode, 10000, H *, H, const H *, size_t) X(cuGraphAddChildGraphNode, 10000, H *, H, const H *, size_t, H) \
    X(cuGraphAddNode, 12030, H *, H, const H *, const void *, size_t, void *) X(cuGraphChildGraphNodeGetGraph, 10000, H, H *) \
    X(cuGraphKernelNodeGetParams, 12000, H, void *) X(cuGraphKernelNodeSetParams, 12000, H, const void *) \
    X(cuGraphMemcpyNodeGetParams, 10000, H, void *) X(cuGraphMemsetNodeGetParams, 10000, H, void *) X(cuGraphHostNodeGetParams, 10000, H, void *) \
    X(cuGraphInstantiate, 11000, H *, H, H *, char *, size_t) X(cuGraphInstantiateWithFlags, 11040, H *, H, uint64_t) \
    X(cuGraphInstantiateWithParams, 12000, H *, H, void *) X(cuGraphUpload, 11010, H, H) X(cuGraphLaunch, 10000, H, H) X(cuGraphExecDestroy, 10000, H) \
    X(cuGraphExecUpdate, 12000, H, H, void *) X(cuGraphExecKernelNodeSetParams, 12000, H, H, const void *) \
    X(cuGraphExecMemsetNodeSetParams, 10020, H, H, const void *, H) X(cuGraphNodeSetEnabled, 11060, H, H, unsigned) \
    X(cuUserObjectCreate, 11030, H *, void *, void (*)(void *), unsigned, unsigned) X(cuUserObjectRelease, 11030, H, unsigned) \
    X(cuGraphRetainUserObject, 11030, H, H, unsigned, unsigned)
#define X(name, version, ...) static R (*name)(__VA_ARGS__);
FUNCTIONS(X)
#undef X

static H function;

static const char *PTX =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry deepum_test_scale(\n"
    "    .param .u64 p0,\n    .param .u64 p1,\n    .param .u64 p2\n)\n{\n    ret;\n}\n";

static void *find(const char *name, int version) {
    void *at = 0;
    int status = -1;
    OK(get_proc(name, &at, version, 0, &status));
    CHECK(at && status == 0);
    return at;
}

static void start(void) {
#define X(name, version, ...) name = (R (*)(__VA_ARGS__))find(#name, version);
    FUNCTIONS(X)
#undef X
    H context, module;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&function, module, "deepum_test_scale"));
}

static H stream(unsigned flags) { H made; OK(cuStreamCreate(&made, flags)); return made; }
static H event(void) { H made; OK(cuEventCreate(&made, 0)); return made; }

/* x[i] = a * x[i] + 1 */
static R scale(Ptr x, uint64_t n, float a, H into) {
    uint64_t factor = 0;
    memcpy(&factor, &a, 4);
    void *params[] = {&x, &n, &factor};
    return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, into, params, 0);
}

static float first(Ptr x) {
    float value;
    OK(cuMemcpy((Ptr)&value, x, 4));
    return value;
}

static Ptr floats(size_t n, float value) {
    Ptr made;
    unsigned bits;
    memcpy(&bits, &value, 4);
    OK(cuMemAllocManaged(&made, n * 4, 1));
    OK(cuMemsetD32Async(made, bits, n, 0));
    OK(cuStreamSynchronize(0));
    return made;
}

static size_t nodes(H graph, H *list, size_t room) {
    OK(cuGraphGetNodes(graph, list, &room));
    return room;
}

static int type(H node) { int kind = -1; OK(cuGraphNodeGetType(node, &kind)); return kind; }

struct kernel { H function; unsigned grid[3], block[3], shared; void **params, **extra; H other, context; };
struct memset_node { Ptr dst; size_t pitch; unsigned value, element; size_t width, height; };
struct host_node { void (*function)(void *); void *argument; };
struct end { size_t x, y, z, lod; unsigned kind; void *host; Ptr device; void *array, *reserved; size_t pitch, height; };
struct box { struct end src, dst; size_t width, height, depth; };
struct update { int result; H node, from; };

static int calls;
static void count_call(void *argument) { calls += *(int *)argument; }
static void callback(H s, R status, void *argument) { (void)s; (void)status; (void)argument; }

/* What is captured does not run; a launch of its graph runs it, as often as it is launched, in order. */
static void replay(void) {
    start();
    H s = stream(1), other = stream(1), fork = event(), join = event(), graph, exec, list[8];
    Ptr x = floats(1024, 1), y = floats(1024, 0);
    int one = 1;
    OK(cuStreamBeginCapture(s, GLOBAL));
    OK(scale(x, 1024, 2, s));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(other, fork, 0));
    OK(cuMemcpyAsync(y, x, 4096, other));
    OK(cuLaunchHostFunc(s, count_call, &one));
    OK(cuEventRecord(join, other));
    OK(cuStreamWaitEvent(s, join, 0));
    OK(scale(y, 1024, 10, s));
    OK(cuStreamEndCapture(s, &graph));
    CHECK(first(x) == 1 && first(y) == 0 && calls == 0);

    CHECK(nodes(graph, list, 8) == 4);
    CHECK(type(list[0]) == KERNEL && type(list[1]) == MEMCPY && type(list[2]) == HOST && type(list[3]) == KERNEL && !list[4]);
    H from[8], to[8];
    size_t edges = 8;
    OK(cuGraphGetEdges(graph, from, to, 0, &edges));
    /* The last kernel comes after the copy and the function. */
    CHECK(edges == 4 && from[2] == list[2] && to[2] == list[3] && from[3] == list[1] && to[3] == list[3]);
    size_t roots = 0, after = 0;
    OK(cuGraphGetRootNodes(graph, 0, &roots));
    OK(cuGraphNodeGetDependentNodes(list[0], 0, 0, &after));
    CHECK(roots == 1 && after == 2);

    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphUpload(exec, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(first(x) == 3 && first(y) == 31 && calls == 1);
    OK(cuGraphLaunch(exec, s));
    /* An executable graph is never beside itself. */
    OK(cuGraphLaunch(exec, other));
    OK(cuStreamSynchronize(other));
    CHECK(first(x) == 15 && first(y) == 151 && calls == 3);
    OK(cuStreamSynchronize(s));
    OK(cuGraphExecDestroy(exec));
    IS(cuGraphLaunch(exec, s), INVALID_VALUE);
}

/* Each call that a capture forbids is its error, and breaks the capture; its end says so once, and leaves the stream as others. */
static void forbidden(void) {
    start();
    H s = stream(1), blocking = stream(0), e = event(), graph;
    Ptr x = floats(1024, 1), p;
    int status, mode;
#define BREAKS(with, in, call, answer)                                  \
    do {                                                                \
        OK(cuStreamBeginCapture(in, with));                             \
        OK(scale(x, 1024, 2, in));                                      \
        IS(call, answer);                                               \
        OK(cuStreamIsCapturing(in, &status));                           \
        CHECK(status == 2);                                             \
        IS(scale(x, 1024, 2, in), INVALIDATED);                         \
        graph = (H)1;                                                   \
        IS(cuStreamEndCapture(in, &graph), INVALIDATED);                \
        CHECK(!graph);                                                  \
        OK(cuStreamSynchronize(in));                                    \
    } while (0)
    BREAKS(GLOBAL, s, cuStreamSynchronize(s), UNSUPPORTED);
    BREAKS(RELAXED, s, cuStreamQuery(s), UNSUPPORTED);
    BREAKS(RELAXED, s, cuCtxSynchronize(), UNSUPPORTED);
    BREAKS(RELAXED, s, cuMemPrefetchAsync(x, 4096, 0, s), UNSUPPORTED);
    BREAKS(RELAXED, s, cuStreamAddCallback(s, callback, 0, 0), UNSUPPORTED);
    BREAKS(THREAD_LOCAL, s, cuMemAlloc(&p, 4096), UNSUPPORTED);
    BREAKS(GLOBAL, s, cuMemFree(x), UNSUPPORTED);
    BREAKS(GLOBAL, s, cuEventQuery(e), UNSUPPORTED);
    BREAKS(GLOBAL, s, cuMemcpy(x, x + 64, 4), UNSUPPORTED);
    BREAKS(RELAXED, blocking, scale(x, 1024, 2, 0), IMPLICIT);
    BREAKS(RELAXED, blocking, cuMemcpy(x, x + 64, 4), IMPLICIT);

    /* An event that was recorded before the capture is of work outside of it. */
    OK(cuEventRecord(e, blocking));
    BREAKS(RELAXED, s, cuStreamWaitEvent(s, e, 0), ISOLATION);
    /* One of the capture is reached by nobody. */
    OK(cuStreamBeginCapture(s, RELAXED));
    OK(cuEventRecord(e, s));
    IS(cuEventQuery(e), CAPTURED_EVENT);
    IS(cuStreamEndCapture(s, &graph), INVALIDATED);
    IS(cuEventSynchronize(e), CAPTURED_EVENT);
    IS(cuStreamWaitEvent(blocking, e, 0), CAPTURED_EVENT);
    OK(cuEventRecord(e, blocking));
    OK(cuEventSynchronize(e));

    /* Relaxed captures and threads allow what is not seen. */
    OK(cuStreamBeginCapture(s, RELAXED));
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemFree(p));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture(s, GLOBAL));
    mode = RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == GLOBAL);
    OK(cuMemAlloc(&p, 4096));
    OK(cuEventQuery(e));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == RELAXED);
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));

    /* Asking whether the NULL stream captures breaks nothing. */
    OK(cuStreamBeginCapture(blocking, RELAXED));
    IS(cuStreamIsCapturing(0, &status), IMPLICIT);
    OK(cuStreamEndCapture(blocking, &graph));
    OK(cuStreamIsCapturing(0, &status));
    CHECK(status == 0);
    mode = 3;
    IS(cuThreadExchangeStreamCaptureMode(&mode), INVALID_VALUE);
}

static void *elsewhere(void *argument) {
    H *given = argument, graph;
    Ptr p;
    OK(cuCtxSetCurrent(given[1]));
    if (!given[2]) {
        IS(cuStreamEndCapture(given[0], &graph), WRONG_THREAD);
    } else {
        /* Beside a global capture of another thread, unless this thread looks only at its own. */
        int mode = THREAD_LOCAL;
        OK(cuThreadExchangeStreamCaptureMode(&mode));
        OK(cuMemAlloc(&p, 4096));
        OK(cuThreadExchangeStreamCaptureMode(&mode));
        IS(cuMemAlloc(&p, 4096), UNSUPPORTED);
    }
    return 0;
}

/* Where captures begin, spread to, and end. */
static void spreading(void) {
    start();
    H s = stream(1), other = stream(1), e = event(), back = event(), graph, again, context, list[4];
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    Ptr x = floats(1024, 1);
    int status;
    IS(cuStreamBeginCapture(0, RELAXED), UNSUPPORTED);
    IS(cuStreamBeginCapture(s, 3), INVALID_VALUE);
    IS(cuStreamEndCapture(s, &graph), ILLEGAL_STATE);
    OK(cuStreamBeginCapture(s, GLOBAL));
    IS(cuStreamBeginCapture(s, GLOBAL), ILLEGAL_STATE);

    /* A fork that does not join. */
    OK(scale(x, 1024, 2, s));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(other, e, 0));
    OK(cuStreamIsCapturing(other, &status));
    CHECK(status == 1);
    OK(scale(x, 1024, 2, other));
    IS(cuStreamEndCapture(s, &graph), UNJOINED);
    CHECK(!graph);
    OK(cuStreamIsCapturing(other, &status));
    CHECK(status == 0);
    /* One that was given nothing has. */
    OK(cuStreamBeginCapture(s, GLOBAL));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(other, e, 0));
    OK(scale(x, 1024, 2, s));
    OK(cuStreamEndCapture(s, &graph));
    CHECK(nodes(graph, list, 4) == 1);

    /* Not where it began; not two at once. */
    OK(cuStreamBeginCapture(s, GLOBAL));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(other, e, 0));
    IS(cuStreamEndCapture(other, &again), UNMATCHED);
    IS(cuStreamEndCapture(s, &again), INVALIDATED);
    OK(cuStreamBeginCapture(s, RELAXED));
    OK(cuStreamBeginCapture(other, RELAXED));
    OK(cuEventRecord(e, s));
    IS(cuStreamWaitEvent(other, e, 0), MERGE);
    IS(cuStreamEndCapture(s, &again), INVALIDATED);
    IS(cuStreamEndCapture(other, &again), INVALIDATED);

    /* Into a graph that is there, behind one of its nodes. */
    OK(cuStreamBeginCaptureToGraph(s, graph, list, 0, 1, GLOBAL));
    IS(cuGraphDestroy(graph), INVALID_VALUE);
    OK(scale(x, 1024, 2, s));
    uint64_t id = 0;
    H into;
    const H *before;
    const unsigned char (*edges)[8];
    size_t n = 0;
    OK(cuStreamGetCaptureInfo(s, &status, &id, &into, &before, (const void **)&edges, &n));
    H second = before[0];
    CHECK(status == 1 && id && into == graph && n == 1 && second != list[0] && !memcmp(edges, "\0\0\0\0\0\0\0\0", 8));
    /* An empty node that the program puts in itself, and makes all that follows come after. */
    H mine;
    OK(cuGraphAddEmptyNode(&mine, graph, before, n));
    OK(cuStreamUpdateCaptureDependencies(s, &mine, 0, 1, 1));
    OK(cuStreamUpdateCaptureDependencies(s, list, 0, 1, 0));
    OK(scale(x, 1024, 2, s));
    OK(cuStreamEndCapture(s, &again));
    CHECK(again == graph && nodes(graph, list, 4) == 4);
    H found[4];
    n = 4;
    OK(cuGraphNodeGetDependencies(list[3], found, 0, &n));
    CHECK(n == 2 && found[0] == mine && found[1] == list[0]);
    IS(cuStreamUpdateCaptureDependencies(s, &mine, 0, 1, 1), ILLEGAL_STATE);

    /* Threads. */
    H given[] = {s, context, 0};
    pthread_t t;
    OK(cuStreamBeginCapture(s, GLOBAL));
    pthread_create(&t, 0, elsewhere, given);
    pthread_join(t, 0);
    given[2] = s;
    pthread_create(&t, 0, elsewhere, given);
    pthread_join(t, 0);
    IS(cuStreamEndCapture(s, &graph), INVALIDATED);

    /* Events that are nodes. */
    OK(cuEventRecord(e, other));
    OK(cuStreamBeginCapture(s, GLOBAL));
    OK(cuStreamWaitEvent(s, e, 1));
    OK(cuEventRecordWithFlags(back, s, 1));
    OK(cuStreamEndCapture(s, &graph));
    CHECK(nodes(graph, list, 4) == 2 && type(list[0]) == WAIT_EVENT && type(list[1]) == EVENT_RECORD);
    H exec, none;
    OK(cuGraphInstantiate(&exec, graph, &none, 0, 0));
    OK(scale(x, 1024, 2, other));
    OK(cuEventRecord(e, other));
    OK(cuGraphLaunch(exec, s));
    OK(cuEventSynchronize(back));
    OK(cuStreamQuery(other));

    /* A stream that goes takes the capture that began in it along. */
    OK(cuStreamBeginCapture(s, GLOBAL));
    OK(cuStreamDestroy(s));
    OK(cuCtxSynchronize());
}

/* Node by node; what nodes say of themselves; executable graphs that change. */
static void building(void) {
    start();
    H s = stream(1), graph, copy, exec, k, m, c, h, child, inner, list[8];
    Ptr x = floats(1024, 5), y = floats(1024, 0), d;
    OK(cuMemAlloc(&d, 4096));
    uint64_t n = 1024, factor = 0;
    float two = 2;
    memcpy(&factor, &two, 4);
    void *params[] = {&x, &n, &factor};
    struct kernel kernel = {function, {1, 1, 1}, {32, 1, 1}, 0, params, 0, 0, 0}, got;
    int seven = 7;
    struct host_node host = {count_call, &seven}, host_got;
    struct memset_node zero = {x, 0, 0, 4, 1024, 1}, zero_got;
    struct box box = {{.kind = 2, .device = x, .pitch = 4096}, {.kind = 4, .device = y, .pitch = 4096}, 4096, 1, 1}, box_got;
    OK(cuGraphCreate(&graph, 0));
    IS(cuGraphCreate(&copy, 1), INVALID_VALUE);
    OK(cuGraphAddMemsetNode(&m, graph, 0, 0, &zero, 0));
    OK(cuGraphAddKernelNode(&k, graph, &m, 1, &kernel));
    OK(cuGraphAddMemcpyNode(&c, graph, &k, 1, &box, 0));
    OK(cuGraphAddHostNode(&h, graph, 0, 0, &host));
    H both[] = {c, c};
    IS(cuGraphAddEmptyNode(&child, graph, both, 2), INVALID_VALUE);
    OK(cuGraphAddDependencies(graph, &c, &h, 0, 1));
    IS(cuGraphAddDependencies(graph, &c, &h, 0, 1), INVALID_VALUE);
    unsigned char programmatic[8] = {1};
    IS(cuGraphAddDependencies(graph, &m, &h, programmatic, 1), 801);

    OK(cuGraphKernelNodeGetParams(k, &got));
    CHECK(got.function == function && got.block[0] == 32 && *(Ptr *)got.params[0] == x && *(uint64_t *)got.params[1] == n && got.context);
    OK(cuGraphMemsetNodeGetParams(m, &zero_got));
    CHECK(zero_got.dst == x && zero_got.element == 4 && zero_got.width == 1024 && zero_got.height == 1);
    OK(cuGraphMemcpyNodeGetParams(c, &box_got));
    CHECK(box_got.src.kind == 2 && box_got.src.device == x && box_got.dst.device == y && box_got.width == 4096 && box_got.depth == 1);
    OK(cuGraphHostNodeGetParams(h, &host_got));
    CHECK(host_got.function == count_call && host_got.argument == &seven);
    IS(cuGraphKernelNodeGetParams(m, &got), INVALID_VALUE);
    box.depth = 2;
    IS(cuGraphAddMemcpyNode(&child, graph, 0, 0, &box, 0), 801);
    uint64_t allocates[32] = {10};
    IS(cuGraphAddNode(&child, graph, 0, 0, 0, allocates), 801);

    /* A copy does the same, with nodes of its own, and outlives the original. */
    OK(cuGraphClone(&copy, graph));
    H k2;
    OK(cuGraphNodeFindInClone(&k2, k, copy));
    CHECK(k2 != k && type(k2) == KERNEL);
    struct { uint64_t flags; H upload, failed; int result; } how = {0, 0, (H)1, -1};
    OK(cuGraphInstantiateWithParams(&exec, copy, &how));
    CHECK(how.result == 0 && !how.failed);
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(first(x) == 1 && first(y) == 1 && calls == 7);

    /* One node of an executable graph. */
    struct memset_node fours = zero;
    fours.value = 0x40800000; /* 4.0 */
    H m2;
    OK(cuGraphNodeFindInClone(&m2, m, copy));
    OK(cuGraphExecMemsetNodeSetParams(exec, m2, &fours, 0));
    params[0] = &y;
    struct kernel of_y = kernel;
    OK(cuGraphExecKernelNodeSetParams(exec, k2, &of_y));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    /* y was 1, then 3, and is overwritten by x, which is 4. */
    CHECK(first(x) == 4 && first(y) == 4);
    OK(cuGraphNodeSetEnabled(exec, m2, 0));
    params[0] = &x;
    OK(cuGraphExecKernelNodeSetParams(exec, k2, &kernel));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(first(x) == 9 && first(y) == 9);
    OK(cuGraphNodeSetEnabled(exec, m2, 1));

    /* All of it, if the structure is the same. */
    struct update info;
    float ten = 10;
    memcpy(&factor, &ten, 4);
    OK(cuGraphKernelNodeSetParams(k, &kernel));
    OK(cuGraphExecUpdate(exec, graph, &info));
    CHECK(info.result == 0);
    OK(cuMemsetD32Async(y, 0, 1024, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(first(x) == 1 && first(y) == 1);
    OK(cuGraphAddEmptyNode(&child, graph, 0, 0));
    IS(cuGraphExecUpdate(exec, graph, &info), UPDATE_FAILURE);
    CHECK(info.result == 2);

    /* A graph within a graph, and a launch that is captured. */
    OK(cuGraphAddChildGraphNode(&child, graph, &child, 1, copy));
    OK(cuGraphChildGraphNodeGetGraph(child, &inner));
    CHECK(inner != copy && nodes(inner, list, 8) == 4);
    IS(cuGraphDestroy(inner), INVALID_VALUE);
    OK(cuGraphDestroy(copy));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(s, GLOBAL));
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamEndCapture(s, &graph));
    CHECK(nodes(graph, list, 8) == 2 && type(list[0]) == CHILD);
    calls = 0;
    H outer;
    OK(cuGraphInstantiateWithFlags(&outer, graph, 1));
    OK(cuGraphLaunch(outer, s));
    OK(cuStreamSynchronize(s));
    CHECK(calls == 14);
    /* In a circle. */
    OK(cuGraphAddDependencies(graph, list + 1, list, 0, 1));
    IS(cuGraphInstantiateWithFlags(&outer, graph, 0), INVALID_VALUE);
    IS(cuGraphInstantiateWithFlags(&outer, graph, 4), 801);
    IS(cuGraphInstantiateWithFlags(&outer, graph, 16), INVALID_VALUE);
}

/* An object of the program lives until the last graph that holds it is gone. */
static void objects(void) {
    start();
    H s = stream(1), graph, copy, exec, object, node;
    int one = 1;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, 0, 0));
    IS(cuUserObjectCreate(&object, &one, count_call, 1, 0), INVALID_VALUE);
    OK(cuUserObjectCreate(&object, &one, count_call, 2, 1));
    OK(cuGraphRetainUserObject(graph, object, 1, 1));
    OK(cuUserObjectRelease(object, 1));
    OK(cuGraphClone(&copy, graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(copy));
    CHECK(calls == 0);
    OK(cuGraphExecDestroy(exec));
    CHECK(calls == 1);
    IS(cuUserObjectRelease(object, 1), INVALID_VALUE);
}

/* Twenty launches of three kernels each, for the flight log. */
static void counted(void) {
    start();
    H s = stream(1), graph, exec;
    Ptr x = floats(1 << 20, 1), y = floats(1 << 20, 1);
    OK(cuStreamBeginCapture(s, GLOBAL));
    for (int i = 0; i < 3; i++) OK(scale(i & 1 ? x : y, 1 << 20, 1, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 20; i++) OK(cuGraphLaunch(exec, s));
    OK(scale(x, 1024, 1, s));
    OK(cuStreamSynchronize(s));
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    get_proc = (GetProc)dlsym(library, "cuGetProcAddress_v2");
    CHECK(get_proc);
    struct { const char *name; void (*run)(void); } cases[] = {
        {"replay", replay}, {"forbidden", forbidden}, {"spreading", spreading}, {"building", building}, {"objects", objects}, {"counted", counted},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[2])) { cases[i].run(); return 0; }
    fprintf(stderr, "no case %s\n", argv[2]);
    return 1;
}
