/* SPDX-License-Identifier: MIT */
/* Graphs: what was captured, again. */
#include "tests/fakes/cuda/emulator.h"

#include "tests/fakes/cuda/fault.h"

struct CUgraph_st {
    std::vector<node> nodes;
    std::vector<device *> branches; /* where each ran */
};

/* Branches but the first, which is the stream of the launch, have streams of their own.
 */
struct CUgraphExec_st {
    CUgraph_st graph;
    std::vector<stream_ref> streams;
};

cudaGraph_t make_graph(const capture_ref &c)
{
    cudaGraph_t graph = new CUgraph_st();

    graph->nodes.swap(c->nodes);
    for (const stream_ref &s : c->branches)
        graph->branches.push_back(s->device);
    return graph;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long)
{
    ENTER("cudaGraphInstantiate", CALL_DEVICE | CALL_UNSAFE);
    locked guard;

    if (!graph)
        return end_call(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st();
    (*exec)->graph = *graph;
    for (size_t b = 1; b < graph->branches.size(); b++)
        (*exec)->streams.push_back(make_stream(graph->branches[b], false));
    return cudaSuccess;
}

/* Records and waits are of this launch. */
static cudaError_t queue_launch(cudaGraphExec_t exec, const stream_ref &origin)
{
    std::map<moment *, moment_ref> moments;
    cudaError_t code = cudaSuccess;

    for (const node &n : exec->graph.nodes) {
        const stream_ref &s = n.branch == 0 ? origin : exec->streams[n.branch - 1];
        item i = n.i;

        i.of_graph = true;
        if (i.kind == ITEM_RECORD) {
            moment_ref m = std::make_shared<moment>();

            m->in = s;
            moments[i.when.get()] = m;
        }
        if (i.when)
            i.when = moments[i.when.get()];
        if (code == cudaSuccess)
            code = queue_item(s, std::move(i));
    }
    return code;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER("cudaGraphLaunch", CALL_DEVICE);
    locked guard;
    stream_ref s = find_stream(stream);

    if (!exec || !s)
        return end_call(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return end_call(cudaErrorNotSupported);
    return end_call(queue_launch(exec, s));
}

static void drop_nodes(std::vector<node> &nodes)
{
    for (node &n : nodes)
        state().dropped.push_back(std::move(n.i));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    ENTER("cudaGraphExecDestroy", CALL_DEVICE);
    locked guard;

    if (!exec)
        return end_call(cudaErrorInvalidResourceHandle);
    for (const stream_ref &s : exec->streams)
        destroy_stream(s);
    drop_nodes(exec->graph.nodes);
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ENTER("cudaGraphDestroy", CALL_DEVICE);
    locked guard;

    if (!graph)
        return end_call(cudaErrorInvalidResourceHandle);
    drop_nodes(graph->nodes);
    delete graph;
    return cudaSuccess;
}
