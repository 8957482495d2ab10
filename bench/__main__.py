"""`make bench`: every bench module in turn. `python -m bench wire_messages` runs one."""

import importlib
import sys

from bench.report import print_rows

MODULES = (
    "wire_commands",
    "wire_messages",
    "hostile",
    "store",
    "brokers",
    "broker_limits",
    "producers",
    "producer_memory",
    "slow_broker",
    "strategies",
    "sim",
    "drain",
    "consume_latency",
    "many_queues",
    "rebalance",
    "spark",
    "cli_scale",
    "dashboard",
)


def main(wanted: list[str]) -> None:
    for name in wanted or MODULES:
        module = importlib.import_module(f"bench.{name}")
        print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        print_rows(module.rows())


if __name__ == "__main__":
    main(sys.argv[1:])
