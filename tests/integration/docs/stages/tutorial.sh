# The address of the reader's machine in its network, and the second machine: a network and a home of its own.
ip netns add second
ip link add to-second type veth peer name eth0 netns second
ip address add 192.0.2.10/24 dev to-second
ip link set to-second up
ip -n second address add 192.0.2.20/24 dev eth0
ip -n second link set eth0 up
ip -n second link set lo up
mkdir /home/second
