"""The five papers that the studies compare with, as they are cited."""

from __future__ import annotations

QASD = "Gedik and Liu, Quality-Aware Distributed Data Delivery for Continuous Query Services (SIGMOD 2006)"
XPORT = "Papaemmanouil et al., Extensible Optimization in Overlay Dissemination Trees (SIGMOD 2006)"
FILTER_QOS = "Fischer and Kossmann, Quality of Service in Stateful Information Filters (DMSN 2006)"
GRID = "Benzing, Koldehofe and Rothermel, Efficient Support for Multi-Resolution Queries in Global Sensor Networks"
PACK = "Chen and Kotz, Policy-Driven Data Dissemination for Context-Aware Applications"
