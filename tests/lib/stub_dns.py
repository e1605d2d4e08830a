# SPDX-License-Identifier: MIT
"""
A DNS server for tests: python3 stub_dns.py FILE ADDRESS... FILE has lines "NAME ADDRESS", read anew
for each question, so that names appear, change and go while others ask. It answers A and AAAA, and
prints the names that it is asked for. Any other name does not exist.
"""
import ipaddress
import select
import socket
import struct
import sys

A, AAAA = 1, 28


def question(packet):
    """The name, the type and the end of the first question."""
    at, labels = 12, []
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    return ".".join(labels).lower(), struct.unpack(">H", packet[at + 1:at + 3])[0], at + 5


def addresses(file, name):
    """What the file has for the name, in its order."""
    with open(file) as f:
        lines = [line.split() for line in f if line.strip()]
    return [address for known, address in lines if known.lower() == name]


def answer(packet, file):
    name, kind, end = question(packet)
    print(name, flush=True)
    known = addresses(file, name)
    found = [ipaddress.ip_address(a).packed for a in known]
    data = [a for a in found if len(a) == {A: 4, AAAA: 16}.get(kind)]
    head = packet[:2] + struct.pack(">HHHHH", 0x8580 if known else 0x8583, 1, len(data), 0, 0)
    records = b"".join(struct.pack(">HHHIH", 0xC00C, kind, 1, 5, len(a)) + a for a in data)
    return head + packet[12:end] + records


def main():
    file, sockets = sys.argv[1], []
    for address in sys.argv[2:]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sockets.append(socket.socket(family, socket.SOCK_DGRAM))
        sockets[-1].bind((address, 53))
    print("ready", flush=True)
    while True:
        for s in select.select(sockets, [], [])[0]:
            packet, peer = s.recvfrom(512)
            s.sendto(answer(packet, file), peer)


if __name__ == "__main__":
    main()
