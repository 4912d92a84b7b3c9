"""Degrees to meters, with PROJ: a map made for the fleet, so that distances on it are distances on the ground."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from carrycast.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# A transverse Mercator map stretches by (d / R)^2 / 2 at a distance d from its middle line: by 0.5 % at 640 km. Fleets
# that go farther need a map that their user chooses.
MAX_SPREAD_DEG = 6.0


class Center(NamedTuple):
    """The middle of a fleet, in degrees, and how far from it most of its rows lie."""

    longitude: float
    latitude: float
    spread_deg: float


def map_for(center: Center, crs: str | None) -> str:
    """The map that a fleet is drawn on, as PROJ knows it: the user's choice, or one around its middle."""
    pyproj = _pyproj()
    if crs is None:
        if center.spread_deg > MAX_SPREAD_DEG:
            raise UserError(
                f"the fleet reaches {center.spread_deg:.0f} degrees from its middle, too far for one map without "
                "distortion: choose a map in meters with --crs, as in --crs EPSG:3035, or ingest its regions apart"
            )
        return f"+proj=tmerc +lat_0={center.latitude:g} +lon_0={center.longitude:g} +k=1 +ellps=WGS84 +units=m"
    try:
        known = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError:
        raise UserError(f"--crs {crs!r}: PROJ knows no such map; give one as in EPSG:32632") from None
    if not known.is_projected or any(axis.unit_name != "metre" for axis in known.axis_info):
        raise UserError(f"--crs {crs}: is no map in meters; give one as in EPSG:32632")
    return crs


def projected(rows: "DataFrame", crs: str) -> "DataFrame":
    """Rows with x_m and y_m where they have degrees; infinite where the map has no such place."""
    return rows.mapInArrow(_projector(crs), rows.schema)


def _projector(crs: str) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """For workers: a function that needs nothing but its batches."""

    def project(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import numpy as np
        import pyarrow as pa
        import pyproj

        there = pyproj.Transformer.from_crs("EPSG:4326", crs, always_xy=True)
        for batch in batches:
            longitude, latitude = (
                batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
                for name in ("longitude", "latitude")
            )
            x_m, y_m = there.transform(longitude, latitude)
            given = batch.column("longitude").is_valid()
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name, made in (("x_m", x_m), ("y_m", y_m)):
                # Tenths of a millimeter: far below what a receiver knows, and the same on every machine.
                rounded = pa.array(np.round(made, 4))
                columns[name] = pa.compute.if_else(given, rounded, columns[name])
            yield pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)

    return project


def _pyproj() -> Any:
    try:
        import pyproj
    except ImportError:
        raise UserError("degrees need pyproj: `pip install 'carrycast[pipeline]'`") from None
    return pyproj
