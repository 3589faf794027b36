"""What the package offers."""

from attention_doctor.adapters import adapt as adapt
from attention_doctor.call.places import Where as Where
from attention_doctor.examination import examine as examine
from attention_doctor.models import examine_model as examine_model
from attention_doctor.report import Finding as Finding
from attention_doctor.report import ModelReport as ModelReport
from attention_doctor.report import Report as Report
from attention_doctor.testing import assert_attention as assert_attention
