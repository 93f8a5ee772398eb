"""The one thing a report needs that is not always installed."""

from typing import Any


def require_plotly() -> Any:
    """plotly's graph objects, or an ImportError that says how to get them."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise ImportError("a report needs plotly, which is not installed: pip install 'gadget-svm[report]'") from error
    return go
