"""`python -m statements`: create the business tables in the database that OUTBOX_DATABASE_URL names."""

from statements.database import open_engine, url_from_environment
from statements.models import create_tables


def main() -> None:
    """Create the tables; running it again changes nothing."""
    engine = open_engine(url_from_environment(), pool_size=1)
    try:
        create_tables(engine)
    finally:
        engine.dispose()


if __name__ == "__main__":
    main()
