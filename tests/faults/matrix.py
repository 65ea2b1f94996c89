from dataclasses import dataclass
@dataclass
class Proof:
    good: bool = True
def prove(*a): return []
def table(p): return ""
