"""The capacity model: from a load and a node to the number of nodes, and which limit decides it."""
