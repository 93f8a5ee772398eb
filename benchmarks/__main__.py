"""All benchmarks, one after another."""

from benchmarks import memory, node_iteration

for benchmark in (node_iteration, memory):
    benchmark.main()
