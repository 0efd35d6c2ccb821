"""Images by name, as nodes pull and remove them."""

from functools import reduce
from operator import or_
from random import Random

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot
from neuron_scheduler.model.node import Image
from tests.support.builders import node

NAMES = ("a:1", "a:2", "b:1")


def test_names_lead_to_sizes_and_nodes() -> None:
    """For every name the nodes by size, largest first, after any changes; a fork changes independently."""
    dice = Random(5)
    pool = [Image(tuple(dice.choices(NAMES, k=2)), dice.choice([1, 2, 3])) for _ in range(6)]
    cluster = Cluster()
    nodes = {}
    for _ in range(400):
        name = dice.choice("nop")
        nodes[name] = node(name, images=tuple(dict.fromkeys(dice.choices(pool, k=dice.randint(0, 3)))))
        cluster.put_node(nodes[name])
        if dice.random() < 0.1:
            cluster.remove_node(name)
            del nodes[name]
        if dice.random() < 0.5:
            continue
        fork = cluster.fork()
        for checked in (cluster, fork):
            for image in NAMES:
                want: dict[int, NodeSet] = {}
                for there in nodes.values():
                    size = max((i.size for i in there.images if image in i.names), default=0)
                    want[size] = want.get(size, NO_NODES) | 1 << (checked.view.slot(there.name) or Slot(0))
                want.pop(0, None)
                listed = [(size, have) for size, have in checked.view.images(image) if have]
                assert [size for size, _ in listed] == sorted((size for size, _ in listed), reverse=True)
                assert reduce(or_, (have for _, have in listed), NO_NODES) == reduce(or_, want.values(), NO_NODES)
                assert all(want[size] & have == have for size, have in listed)
        fork.put_node(node("n", images=(Image(("c:1",), 9),)))
        assert [size for size, _ in fork.view.images("c:1")] == [9]
        assert not list(cluster.view.images("c:1"))


def test_nodes_with_the_same_images_are_one_entry() -> None:
    """Of an image only the lists that have it are kept, however many nodes have pulled them."""
    cluster, images = Cluster(), tuple(Image((f"i:{number}",), number) for number in range(1, 26))
    for number in range(50):
        cluster.put_node(node(f"n{number}", images=images))
    cluster.put_node(node("other", images=images[:5]))
    lists = cluster._table.images._lists.by_key
    assert [len(lists[image]) for image in images] == [2] * 5 + [1] * 20
    cluster.remove_node("other")
    assert {len(kept) for kept in lists.values()} == {1}
    assert [(size, nodes.bit_count()) for size, nodes in cluster.view.images("i:7")] == [(7, 50)]
