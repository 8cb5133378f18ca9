"""Table of what over_tcp.sh measured: python3 over_tcp_table.py LINES"""
import json
import statistics
import sys

lines = [json.loads(line) for line in open(sys.argv[1]) if line.startswith('{')]
iperf = [line['bits'] for line in lines if line['side'] == 'iperf3']
rows = {}
for line in lines:
    if 'op' in line:
        rows.setdefault((line['op'], line['bytes'], line['ranks']), []).append(line)
gigabits = statistics.median(iperf) / 1e9
print(f'iperf3: {gigabits:.2f} Gb/s ({", ".join(f"{b / 1e9:.2f}" for b in iperf)})')
print('us; ratio: median over the rounds of MPI time / ccl time')
for (op, size, ranks), sides in rows.items():
    us = {side['side']: side['us'] for side in sides}
    middle = {name: statistics.median(all_us) for name, all_us in us.items()}
    ratio = statistics.median(m / c for m, c in zip(us['mpi'], us['ccl']))
    choice = next(side['choice'] for side in sides if side['side'] == 'ccl')
    text = f'{op:15} {size:9} mpi {middle["mpi"]:10.1f} ccl {middle["ccl"]:10.1f} ratio {ratio:5.2f} {choice}'
    if op == 'broadcast' and ranks == 2 and size >= 1 << 20:  # a message from one rank to the other
        bits = [size * 8e-3 / c for c in us['ccl']]
        text += f' {statistics.median(bits):.2f} Gb/s, of iperf3 {statistics.median(bits) / gigabits:.3f}'
    others = [f'{name} {all_us:.1f}' for name, all_us in middle.items() if name not in ('mpi', 'ccl')]
    print(text, *others, sep='  ' if others else ' ')
