"""Small movement and contact files in which nodes 0 and 1 meet once, and node 2 meets nobody within 50 m."""

NS2 = """\
$node_(0) set X_ 0.0
$node_(0) set Y_ 0.0
$node_(1) set X_ 200.0
$node_(1) set Y_ 0.0
$node_(2) set X_ 0.0
$node_(2) set Y_ 900.0
$ns_ at 0.0 "$node_(0) setdest 200.0 0.0 10.0"
$ns_ at 20.0 "$node_(1) setdest 200.0 200.0 10.0"
"""
"""Node 0 walks up to node 1, which then walks away: within 50 m from 15 s to 25 s."""

ONE = "0 40 0 200 0 900\n" + "".join(
    f"{second} 0 {min(200, 10 * second)} 0\n{second} 1 200 {max(0, 10 * (second - 20))}\n{second} 2 0 900\n"
    for second in range(0, 41, 5)
)
"""The same, as samples."""

TABLE = "time_s,node,x_m,y_m\n0,0,0,0\n0,1,200,0\n0,2,0,900\n20,1,200,0\n20,0,200,0\n40,1,200,200\n"
"""The same, as a table that has samples only where something changes."""

CONNECTIONS = "15.0 CONN 0 1 up\n25.0 CONN 1 0 down\n30.0 CONN p1 p2 up\n40.0 CONN p1 p2 down\n"
"""The same, and a meeting of nodes 1 and 2."""

SCENARIO = """\
duration_s = 40.0
nodes = 3
{movement}
[radio]
model = "disk"
range_m = 50.0
[protocol]
name = "epidemic"
[[subscribe]]
[[publish]]
nodes = [0]
count = 2
to_s = 10.0
"""
