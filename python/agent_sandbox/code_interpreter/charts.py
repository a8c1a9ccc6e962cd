"""Charts that code drew, as data."""

from __future__ import annotations

from enum import Enum
from typing import Any


class _Named(str, Enum):
    def __str__(self) -> str:
        return str(self.value)


class ChartType(_Named):
    """Kind of a chart; UNKNOWN for one that is not known here."""

    LINE = "line"
    SCATTER = "scatter"
    BAR = "bar"
    PIE = "pie"
    BOX_AND_WHISKER = "box_and_whisker"
    SUPERCHART = "superchart"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> ChartType:
        return cls.UNKNOWN


class ScaleType(_Named):
    """Scale of an axis; UNKNOWN for one that is not known here."""

    LINEAR = "linear"
    DATETIME = "datetime"
    CATEGORICAL = "categorical"
    LOG = "log"
    SYMLOG = "symlog"
    LOGIT = "logit"
    FUNCTION = "function"
    FUNCTIONLOG = "functionlog"
    ASINH = "asinh"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> ScaleType:
        return cls.UNKNOWN


class Chart:
    """A chart: its kind, its title, its elements."""

    type: ChartType
    title: str
    elements: list[Any]

    def __init__(self, **told: Any) -> None:
        self._told = told
        self.type = ChartType(told.get("type"))
        self.title = told.get("title") or ""
        self.elements = [self._element(element) for element in told.get("elements") or ()]

    def _element(self, told: dict[str, Any]) -> Any:
        return told

    def to_dict(self) -> dict[str, Any]:
        """As the sandbox told it."""
        return self._told


class Chart2D(Chart):
    """A chart with two axes."""

    x_label: str | None
    y_label: str | None
    x_unit: str | None
    y_unit: str | None

    def __init__(self, **told: Any) -> None:
        super().__init__(**told)
        self.x_label = told.get("x_label")
        self.y_label = told.get("y_label")
        self.x_unit = told.get("x_unit")
        self.y_unit = told.get("y_unit")


class PointData:
    """A row of points (x, y)."""

    label: str
    points: list[tuple[str | float, str | float]]

    def __init__(self, **told: Any) -> None:
        self.label = told["label"]
        self.points = [(x, y) for x, y in told["points"]]


class PointChart(Chart2D):
    """A chart of points."""

    x_ticks: list[str | float]
    x_tick_labels: list[str]
    x_scale: ScaleType
    y_ticks: list[str | float]
    y_tick_labels: list[str]
    y_scale: ScaleType
    elements: list[PointData]

    def __init__(self, **told: Any) -> None:
        super().__init__(**told)
        self.x_ticks = told.get("x_ticks") or []
        self.x_tick_labels = told.get("x_tick_labels") or []
        self.x_scale = ScaleType(told.get("x_scale"))
        self.y_ticks = told.get("y_ticks") or []
        self.y_tick_labels = told.get("y_tick_labels") or []
        self.y_scale = ScaleType(told.get("y_scale"))

    def _element(self, told: dict[str, Any]) -> PointData:
        return PointData(**told)


class LineChart(PointChart):
    """Lines."""


class ScatterChart(PointChart):
    """Points alone."""


class BarData:
    """A bar."""

    label: str
    group: str
    value: str

    def __init__(self, **told: Any) -> None:
        self.label = told["label"]
        self.group = told["group"]
        self.value = told["value"]


class BarChart(Chart2D):
    """Bars."""

    elements: list[BarData]

    def _element(self, told: dict[str, Any]) -> BarData:
        return BarData(**told)


class PieData:
    """A piece of a pie: angle in degrees."""

    label: str
    angle: float
    radius: float

    def __init__(self, **told: Any) -> None:
        self.label = told["label"]
        self.angle = told["angle"]
        self.radius = told["radius"]


class PieChart(Chart):
    """A pie."""

    elements: list[PieData]

    def _element(self, told: dict[str, Any]) -> PieData:
        return PieData(**told)


class BoxAndWhiskerData:
    """A box."""

    label: str
    min: float
    first_quartile: float
    median: float
    third_quartile: float
    max: float
    outliers: list[float]

    def __init__(self, **told: Any) -> None:
        self.label = told["label"]
        self.min = told["min"]
        self.first_quartile = told["first_quartile"]
        self.median = told["median"]
        self.third_quartile = told["third_quartile"]
        self.max = told["max"]
        self.outliers = told.get("outliers") or []


class BoxAndWhiskerChart(Chart2D):
    """Boxes."""

    elements: list[BoxAndWhiskerData]

    def _element(self, told: dict[str, Any]) -> BoxAndWhiskerData:
        return BoxAndWhiskerData(**told)


class SuperChart(Chart):
    """Several charts in one figure."""

    elements: list[Chart]

    def _element(self, told: dict[str, Any]) -> Chart:
        return chart_of(told)


_CLASSES: dict[ChartType, type[Chart]] = {
    ChartType.LINE: LineChart,
    ChartType.SCATTER: ScatterChart,
    ChartType.BAR: BarChart,
    ChartType.PIE: PieChart,
    ChartType.BOX_AND_WHISKER: BoxAndWhiskerChart,
    ChartType.SUPERCHART: SuperChart,
}


def chart_of(told: dict[str, Any]) -> Chart:
    """The chart of a result."""
    return _CLASSES.get(ChartType(told.get("type")), Chart)(**told)
