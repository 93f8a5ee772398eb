"""All benchmarks, one after another."""

from benchmarks import accuracy, memory, node_iteration

for benchmark in (node_iteration, memory, accuracy):
    benchmark.main()
