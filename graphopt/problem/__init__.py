"""What one call solves: the graph that is made for it, its numbering and the block pattern of H.

structure        numbering, block pattern, edge groups
pattern          places of blocks in H
gauge            which vertices to fix
held             vertices with fixed components
split            vertices of more rows than a device's blocks have
inline           computed values put into the functions of edges
working          estimates in the form that an optimization works with
unseen           points that are not where their cameras see
"""
