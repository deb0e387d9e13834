"""A laboratory of hosts: each site of a deployment a network namespace of this machine, with shaped links between them.

`network` decides when a packet arrives, `carrier` is the process that moves packets between the namespaces, `hosts`
makes and removes namespaces, `laboratory` puts a deployment file into them. It may import everything of the product.
"""

from headgate_studies.lab.hosts import unavailable
from headgate_studies.lab.laboratory import Laboratory

__all__ = ["Laboratory", "unavailable"]
